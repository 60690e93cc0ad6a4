"""What ``import aiokc`` brings along: it must stay quick for programs that use little of it."""

from __future__ import annotations

import subprocess
import sys

# Each takes long, and few clients need it: it is imported where it is used, off the event loop where that is possible.
LATER = {
    *("botocore", "cramjam", "cryptography", "gssapi", "pyarrow", "trustme", "uvloop"),
    *("http.client", "unittest", "urllib.request", "xml"),
    *("aiokc.testing", "aiokc.__main__"),
}
IMPORTED = "import sys, aiokc, aiokc.net.credentials.token_login; print(*sys.modules, sep='\\n')"


def test_importing_aiokc_imports_nothing_that_few_clients_need() -> None:
    ran = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, timeout=60, check=True)
    assert LATER & set(ran.stdout.split()) == set()
