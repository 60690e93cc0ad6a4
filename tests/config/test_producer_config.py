"""The options of a producer: Java's defaults, what goes together, and the names that other clients have for them."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import ConsumerInterceptor, ProducerConfig, ProducerInterceptor, ProducerObserver
from aiokc.config import ConsumerConfig, configured, named_producer
from aiokc.errors import ConfigError

ALL = {"partitioner_rack_aware": True, "client_rack": "a", "transactional_id": "t", "compression_type": "zstd"}


class AsyncObserver(ProducerObserver):
    async def batch(self, *given: Any) -> None: ...  # type: ignore[override]


class Async(ProducerInterceptor):
    async def on_send(self, record: Any) -> Any:  # type: ignore[override]
        return record


async def awaited(*_: object) -> int:
    return 0


def test_defaults_are_those_of_the_java_client() -> None:
    config = ProducerConfig()
    assert (config.acks, config.enable_idempotence, config.max_in_flight_requests_per_connection) == ("all", True, 5)
    assert (config.delivery_timeout_ms, config.request_timeout_ms, config.max_block_ms) == (120_000, 30_000, 60_000)
    assert (config.linger_ms, config.batch_size, config.buffer_memory) == (5, 16_384, 32 << 20)
    assert (config.max_request_size, config.compression_type) == (1 << 20, "none")
    assert (config.transaction_timeout_ms, config.metadata_max_idle_ms) == (60_000, 300_000)
    assert (config.retry_backoff_ms, config.retry_backoff_max_ms) == (100, 1_000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"acks": 2}, "acks=2 must be 'all' .or -1., 1 or 0"),
        ({"acks": "1"}, "acks='1' must be 'all'"),
        ({"acks": True}, "acks must be 'all', -1, 1 or 0, not bool"),
        ({"acks": 1}, "acks=1 needs enable_idempotence=False, said by name"),
        ({"acks": 0, "transactional_id": "t"}, "acks=0 has no meaning with a transactional_id"),
        ({"enable_idempotence": False, "transactional_id": "t"}, "transactional_id needs enable_idempotence=True"),
        ({"enable_renumbering": 0}, "enable_renumbering must be bool, not int"),
        ({"transactional_id": ""}, "transactional_id must not be empty"),
        ({"transactional_id": "\ud800"}, "is not Unicode text"),
        ({"transaction_timeout_ms": 0}, "transaction_timeout_ms=0 must be at least 1"),
        ({"transaction_timeout_ms": 1 << 31}, "at most 2147483647"),
        ({"max_in_flight_requests_per_connection": 6}, "must be at most 5 with enable_idempotence"),
        ({"max_in_flight_requests_per_connection": 0}, "must be at least 1"),
        ({"delivery_timeout_ms": 30_000}, "must be at least linger_ms . request_timeout_ms, which is 30005"),
        ({"linger_ms": -1}, "linger_ms=-1 must be at least 0"),
        ({"linger_ms": 5.0}, "linger_ms must be int, not float"),
        ({"batch_size": -1}, "batch_size=-1 must be at least 0"),
        ({"batch_size": 1 << 31}, "batch_size=2147483648 must be at most"),
        ({"buffer_memory": 100}, "buffer_memory=100 must be at least batch_size=16384"),
        ({"buffer_memory": 0, "batch_size": 0}, "buffer_memory=0 must be at least 1"),
        ({"max_request_size": 0}, "max_request_size=0 must be at least 1"),
        ({"max_block_ms": 0}, "max_block_ms=0 must be at least 1"),
        ({"compression_type": "brotli"}, "compression_type='brotli' must be one of 'none', 'gzip'"),
        ({"compression_level": 1}, "no meaning with compression_type='none'"),
        ({"compression_type": "snappy", "compression_level": 1}, "no meaning with compression_type='snappy'"),
        ({"compression_type": "gzip", "compression_level": 10}, "must be between 1 and 9"),
        ({"compression_type": "gzip", "compression_level": 0}, "must be between 1 and 9"),
        ({"compression_type": "lz4", "compression_level": 18}, "must be between 1 and 17"),
        ({"compression_type": "zstd", "compression_level": 23}, "must be between -131072 and 22"),
        ({"compression_level": True}, "compression_level must be int . None, not bool"),
        ({"partitioner": "fnv1a"}, "partitioner='fnv1a' must be 'murmur2_random', 'consistent_random', or a function"),
        ({"partitioner": 1}, "partitioner=1 must be"),
        ({"partitioner": None}, "partitioner=None must be"),
        ({"partitioner": awaited}, "partitioner must be a plain function"),
        ({"partitioner": dict}, "partitioner is the class dict"),
        ({"partitioner_ignore_keys": True, "partitioner": "consistent_random"}, "leave one of both out"),
        (
            {"partitioner_availability_timeout_ms": 1, "partitioner_adaptive_partitioning_enable": False},
            "needs partitioner_adaptive_partitioning_enable=True",
        ),
        ({"partitioner_availability_timeout_ms": -1}, "must be at least 0"),
        ({"partitioner_rack_aware": True}, "needs client_rack"),
        ({"metadata_max_idle_ms": 4_999}, "metadata_max_idle_ms=4999 must be at least 5000"),
        ({"interceptors": [ConsumerInterceptor()]}, "must hold aiokc.ProducerInterceptor objects only"),
        ({"interceptors": [ProducerInterceptor]}, "holds the class ProducerInterceptor: give an instance"),
        ({"interceptors": [Async()]}, "on_send must be a plain function: nothing awaits"),
        ({"observer": ProducerObserver}, "observer is the class ProducerObserver: give an instance"),
        ({"observer": object()}, "observer must be an aiokc.ProducerObserver, with batch.. and transaction..,"),
        ({"observer": AsyncObserver()}, "batch must be a plain function: nothing awaits"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(ProducerConfig, None, options)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("retries", "leave it out: delivery_timeout_ms alone ends retrying"),
        ("compression.gzip.level", "here that is compression_level"),
        ("queue.buffering.max.ms", "here that is linger_ms"),
        ("message.timeout.ms", "here that is delivery_timeout_ms"),
        ("max_batch_size", "here that is batch_size"),
        ("max.in.flight", "here that is max_in_flight_requests_per_connection"),
        ("default_api_timeout_ms", "here that is max_block_ms"),
        ("group_id", "a Producer is in no group"),
        ("interceptor.classes", "here that is interceptors"),
        ("value_deserializer", "it is for a Consumer"),
        ("socket.timeout.ms", "here that is request_timeout_ms"),
        ("client.dns.lookup", "leave it out: all addresses of a name are tried"),
        ("metadata.recovery.strategy", "leave it out: the bootstrap servers are asked again where no broker answers"),
        ("buffer.memory", "did you mean 'buffer_memory'"),
        ("partitioner.class", "here that is partitioner"),
        ("queue.buffering.max.messages", "no option counts records"),
        ("statistics.interval.ms", r"metrics\(\) returns the figures"),
    ],
)
def test_names_of_other_clients(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {name!r}.*{message}"):
        configured(ProducerConfig, None, {name: 1})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("on_commit", r"give on_done to commit_soon\(\)"),
        ("stats_cb", r"metrics\(\) returns the figures"),
        ("enable.partition.eof", r"compare position\(\) with end_offsets\(\)"),
        ("topic.metadata.refresh.interval.ms", "here that is metadata_max_age_ms"),
    ],
)
def test_names_of_other_consumers(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown option {name!r}: .*{message}"):
        ConsumerConfig.from_mapping({name: 1})


def test_a_consumer_is_not_told_of_options_of_producers() -> None:
    with pytest.raises(
        ConfigError, match=r"unknown option 'queue\.buffering\.max\.ms' \(ConsumerConfig\.from_mapping\(\) takes"
    ):
        configured(ConsumerConfig, None, {"queue.buffering.max.ms": 1})
    with pytest.raises(ConfigError, match="it is an option of Producer"):
        configured(ConsumerConfig, None, {"transactional.id": "t"})


@pytest.mark.parametrize(
    "options",
    [
        {"acks": -1},
        {"acks": 0, "enable_idempotence": False, "max_in_flight_requests_per_connection": 100},
        {"acks": 1, "enable_idempotence": False},
        {"compression_type": "gzip", "compression_level": -1},
        {"compression_type": "lz4", "compression_level": 17},
        {"partitioner": lambda *_: 0},
        {"partitioner": "consistent_random"},
        {"delivery_timeout_ms": 30_005},
        {"batch_size": 0, "buffer_memory": 1},
        ALL,
    ],
)
def test_what_goes_together(options: dict[str, Any]) -> None:
    config = configured(ProducerConfig, None, options)
    assert all(getattr(config, name) == value for name, value in options.items())


def test_acks_and_levels_as_requests_and_codecs_have_them() -> None:
    assert ProducerConfig().required_acks == ProducerConfig(acks=-1).required_acks == -1
    assert ProducerConfig(acks=1, enable_idempotence=False).required_acks == 1
    levels = {kind: ProducerConfig(compression_type=kind) for kind in ("none", "gzip", "snappy", "lz4", "zstd")}
    assert {kind: config.effective_compression_level for kind, config in levels.items()} == {
        "none": None,
        "gzip": -1,
        "snappy": None,
        "lz4": 9,
        "zstd": 3,
    }
    assert ProducerConfig(compression_type="lz4", compression_level=2).effective_compression_level == 2


def test_a_batch_is_full_where_a_request_is() -> None:
    assert ProducerConfig().effective_batch_size == 16_384
    assert ProducerConfig(batch_size=4 << 20).effective_batch_size == 1 << 20


def test_its_responses_hold_no_records() -> None:
    assert ProducerConfig().longest_response_bytes == 16 << 20
    assert ProducerConfig(max_response_bytes=5_000).longest_response_bytes == 5_000
    assert ProducerConfig().received_bytes == 0


def test_a_producer_is_named_by_its_transactional_id_or_a_number() -> None:
    one, two = named_producer(ProducerConfig()).client_id, named_producer(ProducerConfig()).client_id
    assert one is not None
    assert two is not None
    assert one.startswith("producer-")
    assert int(two.removeprefix("producer-")) == int(one.removeprefix("producer-")) + 1
    assert named_producer(ProducerConfig(transactional_id="t")).client_id == "producer-t"
    assert named_producer(ProducerConfig(client_id="mine")).client_id == "mine"
