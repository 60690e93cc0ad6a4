"""A member of a group reads and commits in every way to connect, on both event loops, and on the watchdog's socket."""

from __future__ import annotations

import pytest

from aiokc import Consumer
from aiokc.testing.kafka import SecureKafka
from tests.producing import produce

from .actors.members import committed, read
from .ways import WAYS, Way, parameters

pytestmark = [pytest.mark.every_kafka, pytest.mark.any_loop, pytest.mark.timeout(60)]


@pytest.mark.parametrize("way", parameters(*WAYS, long=lambda way: way.listener == "SHORT"))
async def test_a_member_reads_and_commits(secure_kafka: SecureKafka, topic_name: str, way: Way) -> None:
    secure_kafka.create_topic(topic_name)
    produce(secure_kafka.bootstrap, topic_name, [b"0", b"1", b"2"])
    async with Consumer(
        topic_name,
        group_id=topic_name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **way.options(secure_kafka),
    ) as consumer:
        assert await read(consumer, 3) == [b"0", b"1", b"2"]
        await consumer.commit()
        assert await committed(consumer, topic_name) == 3


async def test_a_member_with_a_delegation_token(secure_kafka: SecureKafka, topic_name: str) -> None:
    token = secure_kafka.create_delegation_token("alice")
    secure_kafka.create_topic(topic_name)
    produce(secure_kafka.bootstrap, topic_name, [b"0"])
    async with Consumer(
        topic_name,
        group_id=topic_name,
        auto_offset_reset="earliest",
        **secure_kafka.options_of("SASLTLS"),
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username=token.id,
        sasl_plain_password=token.hmac,
        sasl_tokenauth=True,
    ) as consumer:
        assert await read(consumer, 1) == [b"0"]
