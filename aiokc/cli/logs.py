"""Where aiokc's log goes while a command runs."""

from __future__ import annotations

import logging
from typing import Final

from .output.escapes import lines_escaped
from .system import System

_NAME: Final = "aiokc command"


def log_to(system: System, verbosity: int) -> None:
    """Let aiokc's log go to stderr: what happens with -v, each detail with -vv; without, what fails is a sentence."""
    logger = logging.getLogger("aiokc")
    for handler in [each for each in logger.handlers if each.get_name() == _NAME]:
        logger.removeHandler(handler)
    handler = logging.StreamHandler(system.stderr) if verbosity else logging.NullHandler()
    handler.set_name(_NAME)
    handler.setFormatter(_Escaping("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbosity > 1 else logging.INFO)
    logger.propagate = False


class _Escaping(logging.Formatter):
    """Brokers and members of groups choose much of what is logged, and no name moves the cursor."""

    def format(self, record: logging.LogRecord) -> str:
        return lines_escaped(super().format(record))
