"""Seeing that certificates on disk have been replaced: times, sizes and inodes of files, compared."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from ...errors import ConfigError
from .stores import folder_files

#: For each file: its path, and (mtime_ns, ctime_ns, size, inode) of what it leads to, or the number of the error.
Fingerprint: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]


def fingerprint(paths: Iterable[Path]) -> Fingerprint:
    """Return the state of files, and of the certificates in folders. It is another one when a file was written anew.

    Links are followed: Kubernetes replaces a link to the folder in which mounted secrets are.
    """
    return tuple((str(file), state(file)) for path in paths for file in _files(path))


def _files(path: Path) -> list[Path]:
    if not os.path.isdir(path):  # Path.is_dir() raises where the path can't be followed: EACCES, ESTALE of an NFS
        return [path]
    try:
        return [path / name for name in folder_files(path, str(path))]
    except ConfigError:
        return [path]  # reading the folder will say what is wrong with it


def state(file: Path) -> tuple[int, ...]:
    """Return (mtime_ns, ctime_ns, size, inode) of what a path leads to, or the number of the error.

    The ctime tells also of a new owner and new permissions, and of a new file for which the rest is the same: tools
    that unpack archives set the mtime, and a file system may give the inode of a deleted file to the next one.
    """
    try:
        about = os.stat(file)
    except OSError as error:
        return (error.errno or 0,)
    except ValueError:  # a NUL in the path: reading it will say so
        return ()
    return about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino
