"""The clients that are measured. The module of each has ``consume(job, stopwatch)``, a function or coroutine.

It connects, and gets the metadata that its first Fetch needs. It starts the stopwatch, assigns all partitions of the
topic from offset 0, without a group, takes ``job.max_records`` records at a time until it has ``job.records``, touches
of each what ``job.takes`` says, and stops the stopwatch. Then it closes the client and returns the Tally.

franz-go is the exception: its client gets a topic's metadata once it consumes it, and connects anew for its Fetches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..cases import CASES, SECURE, SPECIAL, Case


@dataclass(frozen=True, slots=True)
class Client:
    """One row of each case. ``loop`` is "asyncio", "uvloop", or None for a client that blocks its thread.

    ``distribution`` is the package that has its version; ``crc`` says whether it verifies the batches' checksums.
    ``cases`` are those that it is measured in; None: all but ``cases.SPECIAL``. ``environment`` is set for its process.
    """

    name: str
    label: str
    module: str
    distribution: str
    loop: str | None
    crc: str
    cases: frozenset[str] | None = None
    environment: tuple[tuple[str, str], ...] = ()

    def reads(self, case: Case) -> bool:
        """Whether the client is measured in this case."""
        return case.name in self.cases if self.cases is not None else case.name not in SPECIAL


_AIOKC_CRC: Final = "yes (check_crcs)"
_AIOKAFKA_CRC: Final = "yes (check_crcs)"
_LIBRDKAFKA_CRC: Final = "yes (check.crcs=true; its default is false)"

_100B: Final = frozenset({"100B-none-value", "100B-none"})
_UNCOMPRESSED: Final = _100B | {"1kB-none-value", "1kB-none"}
_ALL_TAKEN: Final = frozenset(case.name for case in CASES.values() if case.takes == "all") - SPECIAL
#: A record at a time, slowly: one case says it.
_ONE: Final = frozenset({"100B-none"})
_FEW: Final = frozenset({"100B-few"})

CLIENTS: Final = {
    client.name: client
    for client in (
        Client("aiokc", "aiokc getmany", "aiokc_getmany", "aiokc", "asyncio", _AIOKC_CRC),
        Client(
            "aiokc-uvloop",
            "aiokc getmany, uvloop",
            "aiokc_getmany",
            "aiokc",
            "uvloop",
            _AIOKC_CRC,
            _UNCOMPRESSED | SECURE,
        ),
        Client("aiokafka", "aiokafka getmany", "aiokafka_getmany", "aiokafka", "asyncio", _AIOKAFKA_CRC),
        Client(
            "aiokafka-uvloop",
            "aiokafka getmany, uvloop",
            "aiokafka_getmany",
            "aiokafka",
            "uvloop",
            _AIOKAFKA_CRC,
            _100B,
        ),
        Client(
            "confluent-aio",
            "confluent AIOConsumer",
            "confluent_aio",
            "confluent-kafka",
            "asyncio",
            _LIBRDKAFKA_CRC,
        ),
        Client("confluent", "confluent consume", "confluent_consume", "confluent-kafka", None, _LIBRDKAFKA_CRC),
        Client(
            "kafka-python", "kafka-python poll", "kafka_python_poll", "kafka-python", None, "yes (check_crcs)", _ONE
        ),
        Client(
            "java", "Java ConsumerPerformance", "consumer_performance", "", None, "yes (check.crcs=true)", _ALL_TAKEN
        ),
        Client("franz-go", "franz-go PollFetches", "franz_go", "", None, "yes (always)"),
        Client("socket", "bare socket, bytes dropped", "bare_socket", "", None, "no", _ALL_TAKEN & _UNCOMPRESSED),
        Client("aiokc-columns", "aiokc read_columns", "aiokc_columns", "aiokc", "asyncio", _AIOKC_CRC, _UNCOMPRESSED),
        Client(
            "aiokc-getmany-columns",
            "aiokc getmany_columns",
            "aiokc_getmany_columns",
            "aiokc",
            "asyncio",
            _AIOKC_CRC,
            _ALL_TAKEN & _UNCOMPRESSED,
        ),
        Client("aiokc-iterator", "aiokc async for", "aiokc_iterator", "aiokc", "asyncio", _AIOKC_CRC, _ONE),
        Client(
            "aiokafka-iterator",
            "aiokafka async for",
            "aiokafka_iterator",
            "aiokafka",
            "asyncio",
            _AIOKAFKA_CRC,
            _ONE,
        ),
        Client(
            "aiokc-pure",
            "aiokc getmany, pure Python",
            "aiokc_getmany",
            "aiokc",
            "asyncio",
            _AIOKC_CRC,
            _FEW,
            (("AIOKC_NATIVE", "0"),),
        ),
        Client(
            "aiokafka-pure",
            "aiokafka getmany, pure Python",
            "aiokafka_getmany",
            "aiokafka",
            "asyncio",
            _AIOKAFKA_CRC,
            _FEW,
            (("AIOKAFKA_NO_EXTENSIONS", "1"),),
        ),
    )
}

#: The client that the others are compared with.
REFERENCE: Final = "aiokc"
