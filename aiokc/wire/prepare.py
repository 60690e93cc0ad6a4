"""Codecs compiled before they are wanted."""

from __future__ import annotations

from .compile_read import reader
from .compile_write import writer
from .schema import Message, Request


def prepare(*messages: type[Message], version: int | None = None) -> None:
    """Compile what writes these messages, and reads them or their answers, in ``version`` (the newest).

    It takes a millisecond or two each, for which the first use would hold the event loop: modules do it when they are
    imported, for what every consumer sends when it starts.
    """
    for message in messages:
        wanted = message.max_version if version is None else version
        read = message.response if issubclass(message, Request) else message
        writer(message, wanted, message.is_flexible_in(wanted))
        reader(read, wanted, read.is_flexible_in(wanted))
