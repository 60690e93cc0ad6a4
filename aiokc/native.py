"""Chooses between the C extension and Python, by AIOKC_NATIVE and by what is installed. Nothing else chooses.

With AIOKC_NATIVE=0 Python does the work. With AIOKC_NATIVE=1 importing aiokc fails without the extension. If the
variable is not set, the extension is used where it is installed.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterable
from typing import Any, Final


def load(setting: str) -> tuple[Any, ImportError | None]:
    """Return the extension for a value of AIOKC_NATIVE ("": not set), or None where Python does its work.

    Beside None comes the error that importing it raised, or None with AIOKC_NATIVE=0. Raises ImportError for another
    value, and with "1" where the extension can't be imported.
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
#: The extension module; None unless ``NATIVE``.
extension: Final[Any] = _found
#: Why the extension could not be imported; None where it was, or with AIOKC_NATIVE=0.
missing: Final[ImportError | None] = _why
#: Whether aiokc uses the extension.
NATIVE: Final[bool] = _found is not None


def _nothing(objects: Iterable[object]) -> None:
    """Stand in for the extension where there is none."""


#: Has Python's garbage collector ignore these objects, none of which can be in a reference cycle.
#:
#: It ignores the lists of numbers in their fields, too. For what there is one of for each partition, a few hundred at
#: a time: a pass over those of ten thousand partitions holds the event loop, and each ten thousand that survive two
#: passes over the young ones bring a pass over all that the program has. They are freed as all others, with the last
#: reference to them. Without the extension this does nothing.
untrack: Final[Callable[[Iterable[object]], None]] = extension.untrack if NATIVE else _nothing
