"""What is not of Python: franz-go's program and Apache Kafka's own tools, and whether they can run here."""

from __future__ import annotations

from functools import cache
from typing import Final

from aiokc.testing.kafka import LocalKafkaError
from aiokc.testing.kafka.jars import java_command

from .clients import franz_go

#: By these names, among the clients, the producers and those of studies.
FRANZ_GO: Final = "franz-go"
JAVA: Final = "java"


@cache
def missing(name: str) -> str | None:
    """Return why this client cannot be measured here, on one line; None: it can, as all others can.

    It builds franz-go's program, and fetches Kafka's jars, once.
    """
    if name == FRANZ_GO:
        return franz_go.prepare()
    return _java() if name == JAVA else None


def _java() -> str | None:
    try:
        java_command("")
    except LocalKafkaError as error:
        return str(error).partition("\n")[0]
    return None
