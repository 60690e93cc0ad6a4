"""kafka-python: KafkaConsumer.poll()."""

from __future__ import annotations

from kafka import KafkaConsumer, TopicPartition

from ..measuring.job import FETCH_SETTINGS, SASL_MECHANISM, Job
from ..measuring.stopwatch import Stopwatch
from ..measuring.tally import Tally


def consume(job: Job, stopwatch: Stopwatch) -> Tally:
    tally = Tally()
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]
    consumer = KafkaConsumer(
        bootstrap_servers=job.bootstrap,
        enable_auto_commit=False,
        **FETCH_SETTINGS,
        security_protocol=job.security_protocol,
        **({"ssl_cafile": job.ca} if job.tls else {}),
        **(
            {
                "sasl_mechanism": SASL_MECHANISM,
                "sasl_plain_username": job.user,
                "sasl_plain_password": job.password,
            }
            if job.sasl
            else {}
        ),
    )
    try:
        consumer.partitions_for_topic(job.topic)
        stopwatch.start()
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        while tally.records < job.records:
            batches = consumer.poll(timeout_ms=1_000, max_records=job.max_records)
            for records in batches.values():
                tally.add_records(records)
        stopwatch.stop()
    finally:
        consumer.close()
    return tally
