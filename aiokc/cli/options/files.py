"""Small files that people name: read up to a limit, since a name may also lead to a device without an end."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ..problems import UsageProblem

MOST_BYTES: Final = 1 << 20


def read_text(path: Path) -> str:
    """Return the text of a file of at most 1 MiB, with line ends as ``\\n``.

    Raises UsageProblem for a longer one, also where it has no end as /dev/zero; OSError; UnicodeDecodeError.
    """
    with open(path, "rb") as file:
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise UsageProblem(f"{path}: is longer than 1 MiB: is it the right file?")
    return content.decode().replace("\r\n", "\n").replace("\r", "\n")
