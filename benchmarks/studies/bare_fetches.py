"""Fetches over a bare asyncio connection: how soon asyncio itself would hand a record over, without a client."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Final

from aiokc.wire import encode_request
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

_VERSION: Final = 12  # the last one that names topics
_OFFSET: Final = 0x1122_3344_5566_7788  # stands for the offset in the bytes of the request
_BODY: Final = b"." * 80  # what a value of 100 B ends with, behind its time: see latency.produce


class _Answers(asyncio.Protocol):
    """The connection: its ``answer`` is a future of the bytes of the next answer."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.answer: asyncio.Future[bytes] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) >= 4 + int.from_bytes(self._received[:4], "big") and self.answer is not None:
            answer, self._received = self._received, b""
            self.answer.set_result(answer)


async def read(
    bootstrap: str, topic: str, start: Callable[[], None], add: Callable[[bytes], None], is_done: Callable[[], bool]
) -> None:
    """Ask one broker for a topic's records, from offset 0 on, with the same Fetch again and again but for the offset.

    Values are found by what they end with, and each record is a value: nothing is decoded, and no answer checked.
    """
    host, _, port = bootstrap.partition(",")[0].rpartition(":")
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_connection(_Answers, host, int(port))
    before, after = _request(topic).split(struct.pack(">q", _OFFSET))
    start()
    offset = 0
    while not is_done():
        answers.answer = loop.create_future()
        transport.write(before + struct.pack(">q", offset) + after)
        answer = await answers.answer
        at = answer.find(_BODY)
        while at >= 0:
            add(answer[at - 20 : at + 80])
            offset += 1
            at = answer.find(_BODY, at + 81)
    transport.close()


def _request(topic: str) -> bytes:
    partition = FetchPartition(partition=0, fetch_offset=_OFFSET, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return encode_request(request, version=_VERSION, correlation_id=1, client_id="bare")
