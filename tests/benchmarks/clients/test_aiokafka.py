from __future__ import annotations

from aiokc.testing import Cluster
from benchmarks.clients.options.aiokafka import assign_all, consumer, know_topic
from benchmarks.measuring.job import Job


async def test_the_metadata_of_the_topic_are_there_before_the_clock_starts() -> None:
    with Cluster(topics={"t": 6}).in_thread() as cluster:
        job = Job("aiokafka", cluster.bootstrap, "t", 6, 1, 500)
        async with consumer(job) as reader:
            assert reader.partitions_for_topic("t") is None
            await know_topic(reader, job)
            assert reader.partitions_for_topic("t") == set(range(6))
            assign_all(reader, job)
            assert reader._client._md_update_fut is None  # it asks for nothing more
