"""Loads the C extension, or does without it: the one place that chooses between C and Python (AIOKC_NATIVE).

AIOKC_NATIVE=0: Python. AIOKC_NATIVE=1: C, or an ImportError. Not set: C if the extension is installed, else Python.
"""

from __future__ import annotations

import importlib
import os
from typing import Any, Final


def load(setting: str) -> tuple[Any, ImportError | None]:
    """Return the extension for a value of AIOKC_NATIVE ("" if it is not set), or None if Python does its work.

    The second value is why the extension is missing; None with AIOKC_NATIVE=0. Raises ImportError.
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
#: The extension's module; None unless ``NATIVE``.
extension: Final[Any] = _found
#: Why the extension is missing; None if it is there, or AIOKC_NATIVE=0.
missing: Final[ImportError | None] = _why
#: Whether the extension is used.
NATIVE: Final[bool] = _found is not None
