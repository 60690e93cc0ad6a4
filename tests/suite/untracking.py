"""Whether ``aiokc.native.untrack`` has the garbage collector ignore what it is given, on this interpreter."""

from __future__ import annotations

import sysconfig
from typing import Final

from aiokc.native import NATIVE

#: Not without the extension, nor without the GIL: there the collector has no list of what it looks at.
UNTRACKS: Final = NATIVE and not sysconfig.get_config_var("Py_GIL_DISABLED")
