"""Looks for liblz4 and libzstd, whose functions the C extension calls: once, when the first batch needs one.

They are what packages that are installed anyway bring, or the system's. Without one the packages in Python unpack. With
AIOKC_CODEC_LIBRARIES=0 none is looked for.
"""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import Final

from ...native import extension
from ..compression import Codec

logger = logging.getLogger("aiokc.records")

#: Environment variable; "0": none is looked for.
SETTING: Final = "AIOKC_CODEC_LIBRARIES"

_NAMES: Final = {Codec.LZ4: "liblz4", Codec.ZSTD: "libzstd"}


@cache
def look_for(codec: int) -> str | None:
    """Have the extension use the first library for ``codec`` that is fit; return its path and version, or None."""
    if os.environ.get(SETTING, "") == "0":
        return None
    for path in candidates(Codec(codec)):
        try:
            found = f"{path} {extension.use_codec_library(codec, path)}"
        except (OSError, ValueError) as error:  # ValueError: a path that can't be one
            logger.debug("%s does not unpack %s: %s", path, Codec(codec).name.lower(), error)
        else:
            logger.debug("%s unpacks %s", found, Codec(codec).name.lower())
            return found
    return None


def candidates(codec: Codec) -> list[str]:
    """Return where to look, in this order. Python's module of zstd is a shared library that has libzstd inside.

    That module is not imported: it would take milliseconds, in which the event loop does nothing else.
    """
    paths = _of_system(_NAMES[codec])
    if codec == Codec.ZSTD:
        try:
            spec = _module_of_zstd()
        except (ImportError, ValueError):  # ValueError: it is imported, and says not from where
            return paths
        if spec is not None and spec.has_location and spec.origin is not None:
            paths.insert(0, spec.origin)
    return paths


def _of_system(name: str) -> list[str]:
    if sys.platform == "darwin":
        # It would look for a mere name in the working directory, too: whoever can write there could run code here.
        folders = (f"{sys.base_prefix}/lib", "/opt/homebrew/lib", "/usr/local/lib")
        return [f"{folder}/{name}.1.dylib" for folder in folders]
    return [f"{name}.so.1"]


def _module_of_zstd() -> ModuleSpec | None:
    if sys.version_info >= (3, 14):
        return find_spec("_zstd")
    package = find_spec("backports.zstd")
    return None if package is None else PathFinder.find_spec("_zstd", package.submodule_search_locations)
