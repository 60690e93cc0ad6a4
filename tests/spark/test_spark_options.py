"""Every option is obeyed, or refused by a sentence that names it and what to do."""

from __future__ import annotations

import pickle

import pytest

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError
from spark_source.options import REFUSED, for_batch, for_stream, parse_options

GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "events"}


def test_defaults() -> None:
    options = parse_options(GIVEN)

    assert options.client.bootstrap_servers == "localhost:9092"
    assert options.topics == ("events",)
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert for_stream(options).starting == LATEST
    assert (for_batch(options).starting, for_batch(options).ending) == (EARLIEST, LATEST)


def test_names_in_any_case_and_values_with_blanks() -> None:
    options = parse_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1, b:2",
            "Subscribe": " orders , events,orders",
            "STARTINGOFFSETS": "Earliest",
            "includeheaders": "TRUE",
            "failOnDataLoss": "false",
            "maxoffsetspertrigger": "500",
            "kafkaconsumer.polltimeoutms": "1000",
        }
    )

    assert options.topics == ("orders", "events")
    assert options.client.addresses == (("a", 1), ("b", 2))
    assert options.starting == EARLIEST
    assert (options.include_headers, options.fail_on_data_loss) == (True, False)
    assert (options.max_offsets_per_trigger, options.poll_timeout_ms) == (500, 1000)


def test_options_of_the_kafka_client_under_their_java_names() -> None:
    client = parse_options(
        GIVEN
        | {
            "kafka.request.timeout.ms": "1500",
            "kafka.client.id": "nightly",
            "kafka.isolation.level": "read_committed",
            "kafka.fetch.max.bytes": "1000000",
            "kafka.max.partition.fetch.bytes": "65536",
            "kafka.check.crcs": "false",
        }
    ).client

    assert (client.request_timeout_ms, client.client_id, client.isolation_level) == (1500, "nightly", "read_committed")
    assert (client.fetch_max_bytes, client.max_partition_fetch_bytes, client.check_crcs) == (1_000_000, 65_536, False)


def test_offsets_per_partition() -> None:
    options = parse_options(GIVEN | {"startingOffsets": '{"events":{"0":23,"1":-2,"2":-1}}'})

    assert options.starting == {
        TopicPartition("events", 0): 23,
        TopicPartition("events", 1): EARLIEST,
        TopicPartition("events", 2): LATEST,
    }


def test_parsed_options_travel_to_the_executors() -> None:
    options = parse_options(GIVEN | {"startingOffsets": '{"events":{"0":23}}'})

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"subscribe": ""}, "'subscribe' is missing"),
        ({"subscribe": "a b"}, "'a b' cannot be a topic's name"),
        ({"subscribe": "__aiokc_from__"}, "cannot be a topic's name"),
        ({"kafka.bootstrap.servers": " "}, r"'kafka.bootstrap.servers' is missing; give 'host:port"),
        ({"kafka.bootstrap.servers": "http://x"}, "kafka.bootstrap.servers entry 'http://x' is a URL"),
        ({"startingOffset": "earliest"}, "unknown option 'startingoffset'; did you mean 'startingOffsets'"),
        ({"kafka.request.timeout": "1"}, "did you mean 'kafka.request.timeout.ms'"),
        ({"kafka.qqq": "1"}, "of a Kafka client's options there are: .*kafka.request.timeout.ms"),
        ({"zzz": "1"}, "unknown option 'zzz'; there are: kafka.bootstrap.servers, subscribe"),
        ({"kafka.resolve": "x"}, "unknown option 'kafka.resolve'"),
        ({"kafka.security.protocol": "SSL"}, "TLS and SASL"),
        ({"kafka.request.timeout.ms": "soon"}, "'kafka.request.timeout.ms' must be a whole number, not 'soon'"),
        ({"kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms=0 must be at least 1"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level='x' must be one of 'read_uncommitted'"),
        ({"kafka.check.crcs": "yes"}, "'kafka.check.crcs' must be true or false, not 'yes'"),
        ({"includeHeaders": "1"}, "'includeHeaders' must be true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' must be at least 1"),
        ({"kafkaConsumer.pollTimeoutMs": "-5"}, "'kafkaConsumer.pollTimeoutMs' must be at least 1"),
        ({"startingOffsets": "first"}, "'startingOffsets': 'first' is none of earliest, latest, and JSON"),
        ({"startingOffsets": "[1]"}, r"'startingOffsets': \[1\] is no JSON object of the form"),
        ({"startingOffsets": '{"events":3}'}, "topic 'events' must hold"),
        ({"startingOffsets": '{"events":{"x":3}}'}, "'x' of topic 'events' is no partition number"),
        ({"startingOffsets": '{"events":{"0":-3}}'}, "-3 is no offset for events-0"),
        ({"startingOffsets": '{"events":{"0":true}}'}, "True is no offset for events-0"),
        ({"startingOffsets": '{"events":{"0":1.5}}'}, "1.5 is no offset for events-0"),
    ],
)
def test_wrong_options_are_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(GIVEN | changed)


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_only_the_built_in_source_knows_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' (is|has|cannot) "):
        parse_options(GIVEN | {option.lower(): "1"})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets of a batch query cannot be latest"),
        ({"startingOffsets": '{"events":{"0":-1}}'}, "startingOffsets of a batch query cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"events":{"0":-2}}'}, "endingOffsets cannot be earliest"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries"),
    ],
)
def test_what_a_batch_query_cannot_have(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        for_batch(parse_options(GIVEN | changed))


def test_a_stream_has_no_end() -> None:
    with pytest.raises(ConfigError, match=r"endingOffsets ends a batch query.*availableNow"):
        for_stream(parse_options(GIVEN | {"endingOffsets": "latest"}))
