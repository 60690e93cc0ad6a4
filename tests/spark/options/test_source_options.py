"""Every option is obeyed, or refused with an error that names it and says what to do."""

from __future__ import annotations

import pickle
import re
import zipfile
from dataclasses import replace

import pytest

from aiokc import EARLIEST, LATEST, ClientConfig, TopicPartition
from aiokc.errors import ConfigError
from aiokc.testing.kafka.jars import KAFKA_VERSION, libs
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, spread
from spark_source.options.client_options import CLIENT_OPTIONS, REFUSED
from spark_source.options.refused_security import is_about_security
from spark_source.options.source_options import SourceOptions, for_batch, for_stream, parse_options
from spark_source.options.topic_choice import parse_choice, subscribe

E0, E1, E2 = (TopicPartition("events", number) for number in range(3))
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "events"}


def test_defaults() -> None:
    options = parse_options(GIVEN)

    assert options.client.bootstrap_servers == "localhost:9092"
    assert options.choice == subscribe("events")
    assert (options.fail_on_data_loss, options.include_headers) == (True, False)
    assert for_stream(options).starting == AtOffset("startingOffsets", LATEST)
    assert for_batch(options).starting == AtOffset("startingOffsets", EARLIEST)
    assert for_batch(options).ending == AtOffset("endingOffsets", LATEST)
    assert (options.poll_timeout_ms, options.offset_attempts, options.offset_retry_ms) == (120_000, 3, 1_000)
    assert (options.max_trigger_delay_ms, options.commit_offsets, options.group_id) == (900_000, False, None)


def test_options_made_without_a_query_have_the_defaults_of_a_query() -> None:
    made = SourceOptions(ClientConfig(bootstrap_servers="localhost:9092"), subscribe("events"))

    assert replace(parse_options(GIVEN), client=made.client, given=frozenset()) == made


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

    assert options.choice == subscribe("orders", "events")
    assert options.client.addresses == (("a", 1), ("b", 2))
    assert options.starting == AtOffset("startingOffsets", EARLIEST)
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
            "kafka.security.protocol": "plaintext",
        }
    ).client

    assert (client.request_timeout_ms, client.client_id, client.isolation_level) == (1500, "nightly", "read_committed")
    assert (client.fetch_max_bytes, client.max_partition_fetch_bytes, client.check_crcs) == (1_000_000, 65_536, False)


def test_a_fetch_brings_four_megabytes_of_a_partition_unless_told_otherwise() -> None:
    assert parse_options(GIVEN).client.max_partition_fetch_bytes == 4 << 20


def test_offsets_per_partition() -> None:
    options = parse_options(GIVEN | {"startingOffsets": '{"events":{"0":23,"1":-2,"2":-1}}'})

    assert options.starting == AtOffset("startingOffsets", {E0: 23, E1: EARLIEST, E2: LATEST})


def test_a_partial_json_and_what_the_others_do() -> None:
    given = {"startingOffsets": '{"events":{"0":23}}', "startingOffsetsDefault": "earliest"}

    assert parse_options(GIVEN | given).starting == AtOffset("startingOffsets", {E0: 23}, EARLIEST)


def test_times() -> None:
    each = '{"events":{"0":1700000000000}}'

    assert parse_options(GIVEN | {"startingTimestamp": "5"}).starting == AtTime("startingTimestamp", 5)
    assert parse_options(GIVEN | {"endingTimestamp": "5"}).ending == AtTime("endingTimestamp", 5, LATEST)
    given = {"startingOffsetsByTimestamp": each, "startingOffsetsByTimestampStrategy": "Latest"}
    expected = AtTime("startingOffsetsByTimestamp", {E0: 1_700_000_000_000}, LATEST)
    assert parse_options(GIVEN | given).starting == expected


def test_one_time_goes_before_times_and_times_before_offsets(caplog: pytest.LogCaptureFixture) -> None:
    each = {"startingOffsetsByTimestamp": '{"events":{"0":7}}', "startingOffsets": "earliest"}

    assert parse_options(GIVEN | each).starting == AtTime("startingOffsetsByTimestamp", {E0: 7})
    assert parse_options(GIVEN | each | {"startingTimestamp": "5"}).starting == AtTime("startingTimestamp", 5)
    assert "the options startingOffsetsByTimestamp, startingOffsets are ignored" in caplog.text


def test_committed_offsets() -> None:
    given = {"startingOffsets": "committed", "kafka.group.id": "billing", "startingOffsetsDefault": "latest"}

    options = parse_options(GIVEN | given)

    assert options.starting == AtCommitted("startingOffsets", "billing", LATEST)
    assert for_batch(options).starting == options.starting


def test_partitions_and_patterns() -> None:
    assigned = parse_choice({"assign": '{"events":[1,0],"orders":[3]}'})
    matching = parse_choice({"subscribepattern": "events-(?<year>20..)"})

    assert assigned.topics == frozenset({"events", "orders"})
    assert assigned.partitions == frozenset({E0, E1, TopicPartition("orders", 3)})
    assert (assigned.wants(E1), assigned.wants(E2)) == (True, False)
    topics = ("events-2026", "old-events-2026b", "events")
    assert [matching.wants_topic(topic) for topic in topics] == [True, True, False]
    whole = parse_choice({"subscribepattern": "^events-20..$"})
    assert [whole.wants_topic(topic) for topic in topics] == [True, False, False]


@pytest.mark.parametrize(
    ("text", "ms"), [("15m", 900_000), ("2min", 120_000), ("30S", 30_000), ("7", 7), ("1d", 864e5), ("2500us", 2)]
)
def test_spans_of_time_are_written_as_sparks_are(text: str, ms: int) -> None:
    assert parse_options(GIVEN | {"minOffsetsPerTrigger": "9", "maxTriggerDelay": text}).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("least", "most"), [("minOffsetsPerTrigger", "maxOffsetsPerTrigger"), ("minPartitions", "maxPartitions")]
)
@pytest.mark.parametrize("low", ["8", "9"])
def test_a_least_number_may_be_as_great_as_the_most(least: str, most: str, low: str) -> None:
    assert parse_options(GIVEN | {least: low, most: "9"}).given >= {least, most}


def test_the_prefix_of_group_ids_names_the_client() -> None:
    assert parse_options(GIVEN | {"groupIdPrefix": "nightly"}).client.client_id == "nightly"
    assert parse_options(GIVEN | {"groupIdPrefix": "a", "kafka.client.id": "b"}).client.client_id == "b"


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
        ({"kafka.metrics.window.ms": "1"}, "of a Kafka client's options there are: "),
        ({"kafka.fetch.min.byte": "1"}, "did you mean 'kafka.fetch.min.bytes'"),
        ({"path": "events"}, "'path': there are no files to read; give the topic as 'subscribe'"),
        ({"provider": "aiokc", "option.subscribe": "events"}, "can't be USING aiokc.* use CREATE TEMPORARY VIEW"),
        (
            {"Topic": "events"},
            r"'topic': this source writes nothing; write with format\('kafka'\).* give it as 'subscribe'",
        ),
        ({"checkpointLocation": "/tmp"}, r"'checkpointLocation' is for writeStream, and this source writes nothing"),
        ({"zzz": "1"}, "unknown option 'zzz'; there are: kafka.bootstrap.servers, assign, subscribe"),
        ({"kafka.resolve": "x"}, "unknown option 'kafka.resolve'"),
        ({"kafka.request.timeout.ms": "soon"}, "'kafka.request.timeout.ms' must be a whole number, not 'soon'"),
        (
            {"kafka.default.api.timeout.ms": "2147483648"},
            "kafka.default.api.timeout.ms=2147483648 must be at most 2147483647",
        ),
        (
            {"fetchOffset.retryIntervalMs": "9223372036854775807"},
            "'fetchOffset.retryIntervalMs' must be at most 2147483647",
        ),
        ({"kafka.request.timeout.ms": "0"}, "kafka.request.timeout.ms=0 must be at least 1"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level='x' must be one of 'read_uncommitted'"),
        ({"kafka.check.crcs": "yes"}, "'kafka.check.crcs' must be true or false, not 'yes'"),
        ({"includeHeaders": "1"}, "'includeHeaders' must be true or false"),
        ({"maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' must be at least 1"),
        ({"kafkaConsumer.pollTimeoutMs": "-5"}, "'kafkaConsumer.pollTimeoutMs' must be at least 1"),
        (
            {"startingOffsets": "first"},
            "'startingOffsets': give earliest, latest .*, committed, or JSON .* not 'first'",
        ),
        ({"startingOffsets": "[1]"}, r"'startingOffsets': give earliest, .*, committed, or JSON .* not '\[1\]'"),
        ({"startingOffsets": '{"events":{"0":3,"0":4}}'}, "'startingOffsets' names '0' twice"),
        ({"startingOffsets": '{"events":'}, r"is no JSON like .*: Expecting value, after 10 characters"),
        ({"startingOffsets": '{"events":{"0":' + "9" * 5_000 + "}}"}, "'startingOffsets': .* is no JSON like"),
        ({"startingOffsets": '{"events":' * 100_000}, "'startingOffsets': .* is no JSON like"),
        ({"startingOffsets": '{"events":{"0":3,"00":4}}'}, "'startingOffsets': '00' of topic 'events' is no partition"),
        ({"startingOffsets": '{"events":{"' + "9" * 5_000 + '":3}}'}, "of topic 'events' is no partition number"),
        ({"startingOffsets": "committed"}, "startingOffsets=committed needs 'kafka.group.id'"),
        ({"endingOffsets": "committed", "kafka.group.id": "g"}, "'endingOffsets': give latest, or JSON"),
        ({"startingOffsetsDefault": "latest"}, "completes the JSON of 'startingOffsets', which is not given"),
        ({"startingOffsets": "latest", "startingOffsetsDefault": "latest"}, "no meaning with startingOffsets=latest"),
        ({"startingTimestamp": "5", "startingOffsetsDefault": "latest"}, "no meaning with 'startingTimestamp'"),
        ({"startingTimestamp": "-5"}, "'startingTimestamp' must be at least 0"),
        ({"startingTimestamp": "9" * 19}, "'startingTimestamp' must fit into 64 bits: 9{19} does not"),
        ({"endingOffsetsByTimestamp": '{"events":{"0":5}}', "endingOffsetsDefault": "earliest"}, "one of latest, not"),
        ({"startingOffsetsByTimestamp": "5"}, "'startingOffsetsByTimestamp': '5' is no JSON object like"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "has no meaning without 'startingTimestamp'"),
        (
            {"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "x"},
            "must be one of error, latest, not 'x'",
        ),
        ({"assign": '{"events":[0]}'}, "options 'assign' and 'subscribe' exclude one another: keep one"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, r"minOffsetsPerTrigger \(9\) is more than max"),
        ({"maxTriggerDelay": "5m"}, "'maxTriggerDelay' has no meaning without 'minOffsetsPerTrigger'"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "5 weeks"}, "must be a time span like 500ms, 30s"),
        ({"minPartitions": "0"}, "'minPartitions' must be at least 1"),
        ({"minPartitions": "9", "maxPartitions": "8"}, r"minPartitions \(9\) is more than maxPartitions"),
        ({"maxPartitions": "8", "maxRecordsPerPartition": "9"}, "exclude one another"),
        ({"commitOffsets": "true"}, "commitOffsets needs 'kafka.group.id'"),
        ({"kafka.session.timeout.ms": "9"}, "'kafka.session.timeout.ms' has no meaning here: .*leave it out"),
        ({"startingOffsets": '{"events":3}'}, "topic 'events' must hold"),
        ({"startingOffsets": '{"events":{"x":3}}'}, "'x' of topic 'events' is no partition number"),
        ({"startingOffsets": '{"events":{"0":-3}}'}, "-3 is no offset for events-0"),
        ({"startingOffsets": '{"events":{"0":9223372036854775808}}'}, "9223372036854775808 is no offset for events-0"),
        ({"startingOffsets": '{"events":{"0":true}}'}, "True is no offset for events-0"),
        ({"startingOffsets": '{"events":{"0":1.5}}'}, "1.5 is no offset for events-0"),
    ],
)
def test_wrong_options_are_named(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_options(GIVEN | changed)


@pytest.mark.parametrize(
    ("option", "given"),
    [
        *[(option, given) for option in ("startingOffsets", "endingOffsets") for given in ("now", "{")],
        *[(option, "now") for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "assign")],
    ],
)
def test_the_example_in_an_error_is_accepted(option: str, given: str) -> None:
    base = {"kafka.bootstrap.servers": "localhost:9092"} if option == "assign" else GIVEN
    with pytest.raises(ConfigError) as raised:
        parse_options(base | {option: given})
    example = re.search(r"like (\S+[}\]]})", str(raised.value))
    assert example is not None
    for_batch(parse_options(base | {option: example[1]}))


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("change", "says"),
    [(",}}", "Illegal trailing|Expecting property name"), (',"9":3}}', "names '9' twice$"), ("}}x", "Extra data")],
)
def test_long_json_has_a_short_error_soon(change: str, says: str) -> None:
    text = '{"events":{' + ",".join(f'"{number}":5' for number in range(30_000)) + change
    with pytest.raises(ConfigError, match=says) as raised:
        parse_options(GIVEN | {"startingOffsets": text})
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(
    ("option", "given"),
    [
        ("startingOffsets", "{}"),
        ("startingOffsets", '{{"{}":7}}'),
        ("assign", "[{}]"),
        ("assign", '{{"{}":7}}'),
        ("subscribe", "{}"),
        ("subscribePattern", "{}("),
        ("includeHeaders", "{}"),
    ],
)
def test_a_long_text_is_cut(option: str, given: str) -> None:
    base = GIVEN if option[:3] in ("sta", "inc") else {"kafka.bootstrap.servers": "localhost:9092"}
    with pytest.raises(ConfigError) as raised:
        parse_options(base | {option: given.format("x" * 100_000)})
    assert len(str(raised.value)) < 400


def test_an_error_of_many_partitions_names_the_first() -> None:
    given = AtOffset("endingOffsets", {E0: 5})
    with pytest.raises(ConfigError, match=r"leaves out events-1, .* 980 more: .* \(-1: latest\), or") as raised:
        spread(given, [TopicPartition("events", number) for number in range(1_001)])
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("option", sorted(REFUSED))
def test_what_only_a_java_client_knows_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match=f"option '{option}' (is|has|cannot) "):
        parse_options(GIVEN | {option.lower(): "1"})


def options_of(client: str) -> set[str]:
    """Return the names in Java's class of the options of a "consumer" or "producer", as options of Spark."""
    name = f"org/apache/kafka/clients/{client}/{client.capitalize()}Config.class"
    with zipfile.ZipFile(libs() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        text = jar.read(name)
    # A constant of a class file: its kind (1: text), its length in two bytes, and the text.
    constants = re.finditer(rb"\x01\x00(.)([a-z0-9.]+)", text, re.DOTALL)
    names = {found[2].decode() for found in constants if found[1][0] == len(found[2])}
    dotted = {name for name in names if "." in name and not name.startswith(("internal.", "org."))}
    return {f"kafka.{name}" for name in dotted | (names & {"acks", "retries"})}


def test_every_option_of_javas_clients_is_obeyed_or_refused_by_name() -> None:
    consumers, producers = options_of("consumer"), options_of("producer")
    assert consumers > {"kafka.client.dns.lookup", "kafka.isolation.level"}
    assert producers > {"kafka.acks", "kafka.linger.ms"}

    obeyed = CLIENT_OPTIONS.keys() | {"kafka.bootstrap.servers", "kafka.group.id"}
    names = {name for name in consumers | producers if not is_about_security(name)}
    assert names - obeyed - REFUSED.keys() == set()
    assert all("this source only reads" in REFUSED[name] for name in names & (producers - consumers))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets of a batch query cannot be latest"),
        ({"startingOffsets": '{"events":{"0":-1}}'}, "startingOffsets of a batch query cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"events":{"0":-2}}'}, "endingOffsets cannot be earliest"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries"),
        ({"minOffsetsPerTrigger": "5"}, "minOffsetsPerTrigger is for streaming queries"),
        ({"commitOffsets": "true", "kafka.group.id": "g"}, "commitOffsets is for streaming queries"),
        ({"startingOffsets": '{"events":{"0":1}}', "startingOffsetsDefault": "latest"}, "cannot be latest"),
    ],
)
def test_what_a_batch_query_cannot_have(changed: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        for_batch(parse_options(GIVEN | changed))


@pytest.mark.parametrize(
    "ending",
    [{"endingOffsets": "latest"}, {"endingTimestamp": "5"}, {"endingOffsetsByTimestamp": '{"events":{"0":5}}'}],
)
def test_a_stream_has_no_end(ending: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"ending.* ends a batch query.*availableNow"):
        for_stream(parse_options(GIVEN | ending))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({}, r"option 'subscribe' is missing.* To write: this source writes nothing; write with format\('kafka'\)"),
        ({"assign": " "}, "option 'assign' is missing"),
        ({"subscribe": ", ,"}, "'subscribe' names no topic"),
        ({"assign": "events"}, "option 'assign': 'events' is no JSON like"),
        ({"assign": '{"events":0}'}, "topic 'events' must have a list of partitions"),
        ({"assign": '{"events":[-1]}'}, "-1 of topic 'events' is no partition number"),
        ({"assign": "{}"}, "'assign' names no partition"),
        ({"subscribepattern": "a("}, r"'a\(' is no regular expression"),
        ({"subscribepattern": "[a-z&&[^b]]"}, "is no regular expression that Python understands"),
        ({"subscribepattern": "events-[a[x-z]]"}, r"\(\[ in brackets\); of Java's, leave out .* && and another \["),
        ({"subscribepattern": "[^a[b]]"}, r"\(\[ in brackets\)"),
        ({"subscribepattern": r"(a|\[[x\]\[y[z]])"}, r"\(\[ in brackets\)"),
        ({"subscribepattern": "[]a[b]]"}, r"\(\[ in brackets\)"),
        ({"subscribepattern": r"\p{Alpha}"}, r"leave out \\p"),
    ],
)
def test_a_choice_that_is_none(choice: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_choice(choice)
