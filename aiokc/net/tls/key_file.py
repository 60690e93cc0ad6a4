"""A file for a private key, for as long as OpenSSL reads it: ssl can load a key from a file only."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def key_file(text: bytes) -> Iterator[str]:
    """Return the path of a file with ``text``, which only this user can read, and which is gone after the block.

    On Linux it is in memory, and never on a disk.
    """
    descriptor = _in_memory()
    if descriptor is None:
        descriptor, path = tempfile.mkstemp(prefix="aiokc-", suffix=".pem")  # with mode 0600
        on_disk = True
    else:
        path, on_disk = f"/proc/self/fd/{descriptor}", False
    try:
        try:
            _write(descriptor, text)
        finally:
            if on_disk:  # Windows opens no file twice
                os.close(descriptor)
        yield path
    finally:
        if on_disk:
            os.unlink(path)
        else:
            os.close(descriptor)


def _in_memory() -> int | None:
    """Return the descriptor of a new file in memory; None where the system has none, or no /proc to open it by."""
    if sys.platform != "linux" or not hasattr(os, "memfd_create"):  # built with a glibc older than 2.27 it has none
        return None
    try:
        descriptor = os.memfd_create("aiokc", os.MFD_CLOEXEC)
    except OSError:  # a sandbox may forbid it
        return None
    if os.path.exists(f"/proc/self/fd/{descriptor}"):
        return descriptor
    os.close(descriptor)
    return None


def _write(descriptor: int, text: bytes) -> None:
    written = 0
    while written < len(text):
        written += os.write(descriptor, text[written:])
