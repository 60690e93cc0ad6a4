"""The extension in C: whether it is there, and whether it is wanted. The one place that chooses between C and Python.

AIOKC_NATIVE=0 does without it, AIOKC_NATIVE=1 insists on it, and where that is not set it is taken if it is installed.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final


def load(setting: str) -> tuple[Any, ImportError | None]:
    """Return the extension, for a value of AIOKC_NATIVE ("" where it is not set), or None where Python does its work.

    With None comes why the extension is not there, unless AIOKC_NATIVE=0 asked for that. Raises ImportError.
    """
    if setting == "0":
        return None, None
    if setting not in ("", "1"):
        raise ImportError(f"AIOKC_NATIVE={setting!r}: it is 0 (decode in Python), 1 (in C, or fail), or not set")
    try:
        return importlib.import_module("aiokc._native.extension"), None
    except ImportError as error:
        if setting == "1":
            raise ImportError(
                "AIOKC_NATIVE=1, but this installation of aiokc has no working aiokc._native.extension: "
                "install it from a wheel or with a C compiler, or unset AIOKC_NATIVE to decode in Python"
            ) from error
        return None, error


_found, _why = load(os.environ.get("AIOKC_NATIVE", ""))
#: What is in the extension: only where ``NATIVE``.
extension: Final[Any] = _found
#: Why it is not there, where nobody asked to do without it.
missing: Final[ImportError | None] = _why
#: Whether the extension is used.
NATIVE: Final[bool] = _found is not None
