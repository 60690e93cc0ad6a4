"""confluent-kafka: Consumer.consume()."""

from __future__ import annotations

from confluent_kafka import Consumer, TopicPartition

from ..measuring.job import Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally
from .options.librdkafka import settings


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally(takes=job.takes)
    partitions = [TopicPartition(job.topic, number, 0) for number in range(job.partitions)]
    consumer = Consumer(settings(job))
    try:
        consumer.list_topics(job.topic, timeout=10)
        stopwatch.start()
        consumer.assign(partitions)
        while tally.records < job.records:
            # consume() waits for as many records as asked for: asking for more than are left costs a timeout.
            wanted = min(job.max_records, job.records - tally.records)
            tally.add_messages(consumer.consume(wanted, timeout=1.0))
        stopwatch.stop()
        tally.ended_at([partition.offset for partition in consumer.position(partitions)])
    finally:
        consumer.close()
    return tally
