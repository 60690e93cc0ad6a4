"""What becomes of records that were sent, one by one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from aiokc.cli.producing.records import Outgoing
from aiokc.cli.producing.sending import Sending
from aiokc.errors import RecordTooLarge


class _Deliveries:
    """Stands for a producer whose partition 0 has no leader: what is sent to others has its outcome at once."""

    def __init__(self) -> None:
        self.waiting: list[asyncio.Future[None]] = []

    async def send(self, _topic: str, value: bytes, _key: None, *, partition: int, **_: Any) -> asyncio.Future[None]:
        delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if partition == 0:
            self.waiting.append(delivery)
        elif value == b"wrong":
            delivery.set_exception(RecordTooLarge("no"))
        else:
            delivery.set_result(None)
        return delivery


async def test_outcomes_behind_an_open_one_do_not_pile_up() -> None:
    producer = _Deliveries()
    sending = Sending(cast("Any", producer), "t", 2)
    longest = 0
    for number in range(50_000):
        await sending.send(f"line {number}", Outgoing(b"v", partition=0 if number % 1_000 == 0 else 1))
        assert sending.settle()
        longest = max(longest, len(sending._open))
    assert longest < 5_000
    await sending.send("line x", Outgoing(b"wrong", partition=1))
    for number in range(5_000):
        await sending.send(f"line {number}", Outgoing(b"v", partition=1))
    assert not sending.settle()
    assert [where for where, _ in sending.failures] == ["line x"]
    for delivery in producer.waiting:
        delivery.set_result(None)
    sending.settle()
    assert (sending.sent, sending.stored, len(sending._open)) == (55_001, 55_000, 0)
