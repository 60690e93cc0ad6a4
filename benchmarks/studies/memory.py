"""Memory when the application reads slowly: 1,000 partitions hold four times what may be buffered."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, Final

from aiokc import Consumer, TopicPartition

from ..load import LoadFailed, load_spread
from ..measuring.stopwatch import peak_rss
from . import StudyFailed, measured

TITLE: Final = "Memory: 1,000 partitions of 250 records of 1 kB, and a user who takes 100 records each 10 ms"

_PARTITIONS: Final = 1_000
_RECORDS: Final = 250_000
_SECONDS: Final = 10.0
_TOPIC: Final = f"benchmark-memory-{_PARTITIONS}-{_RECORDS}"


def run(bootstrap: str, rounds: int) -> list[dict[str, str]]:
    row = {"client": "aiokc getmany"}
    try:
        load_spread(bootstrap, _TOPIC, _PARTITIONS, _RECORDS, 1_000)
        found = [measured("memory", bootstrap=bootstrap) for _ in range(min(rounds, 3))]
    except (LoadFailed, StudyFailed) as error:
        return [row | {"peak MB": f"failed: {error}", "fetch_buffer_bytes": "-", "bar": "-"}]
    budget = found[0]["budget"]
    return [
        row
        | {
            "peak MB": f"{max(one['peak'] for one in found) / 1e6:.0f}",
            "before it read: MB": f"{max(one['before'] for one in found) / 1e6:.0f}",
            "fetch_buffer_bytes": f"{budget / 1e6:.0f} MB",
            "bar": f"{budget / 1e6 + 64:.0f} MB",
        }
    ]


async def main(job: dict[str, Any]) -> dict[str, float]:
    async with Consumer(
        bootstrap_servers=job["bootstrap"], auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        await consumer.partitions_for_topic(_TOPIC)
        before = peak_rss()
        consumer.assign(TopicPartition(_TOPIC, number) for number in range(_PARTITIONS))
        loop = asyncio.get_running_loop()
        until = loop.time() + _SECONDS
        while loop.time() < until:
            await consumer.getmany(max_records=100)
            await asyncio.sleep(0.01)
        return {"peak": peak_rss(), "before": before, "budget": consumer.config.fetch_buffer_bytes}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
