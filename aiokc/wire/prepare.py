"""Compiling readers and writers of messages at import time, before the first use."""

from __future__ import annotations

from .compile_read import reader, sliced_reader
from .compile_write import writer
from .schema import Message, Request


def prepare(*messages: type[Message], version: int | None = None, in_slices: bool = False) -> None:
    """Compile the writers of these messages, and the readers of them or their responses, in ``version`` (the newest).

    Each takes a millisecond or two, for which its first use would hold the event loop. So modules call this when they
    are imported, for the messages that every consumer or producer sends at its start. ``in_slices``: also the
    readers of long messages, where most are long.
    """
    for message in messages:
        wanted = message.max_version if version is None else version
        read = message.response if issubclass(message, Request) else message
        writer(message, wanted, message.is_flexible_in(wanted))
        reader(read, wanted, read.is_flexible_in(wanted))
        if in_slices:
            sliced_reader(read, wanted, read.is_flexible_in(wanted))
