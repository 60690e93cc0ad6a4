"""Options from the environment, and from the dictionaries of other clients."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from aiokc import Client, ClientConfig, Consumer, ConsumerConfig, Producer, ProducerConfig, Secret
from aiokc.config import ClusterConfig
from aiokc.config.written.other_names import OTHER_NAMES
from aiokc.errors import ConfigError

# As a service has it for librdkafka, for its consumers and its producers.
LIBRDKAFKA: dict[str, Any] = {
    "metadata.broker.list": "kafka:9092",
    "group.id": "billing",
    "session.timeout.ms": 120000,
    "enable.auto.commit": "false",
    "auto.offset.reset": "smallest",
    "security.protocol": "sasl_ssl",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "hunter2",
    "ssl.ca.location": "/etc/ca.pem",
    "queued.max.messages.kbytes": "2048",
    "queue.buffering.max.kbytes": 1024,
    "queue.buffering.max.ms": "10",
    "request.required.acks": "-1",
}


def test_a_dictionary_of_librdkafka_serves_all_kinds_of_clients() -> None:
    connecting: dict[str, Any] = {
        "bootstrap_servers": "kafka:9092",
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "ann",
        "sasl_plain_password": "hunter2",
        "ssl_truststore_location": "/etc/ca.pem",
    }
    assert ClusterConfig.from_mapping(LIBRDKAFKA) == ClusterConfig(**connecting)
    assert ClientConfig.from_mapping(LIBRDKAFKA) == ClientConfig(fetch_buffer_bytes=2 << 20, **connecting)
    assert ConsumerConfig.from_mapping(LIBRDKAFKA) == ConsumerConfig(
        group_id="billing",
        session_timeout_ms=120_000,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        fetch_buffer_bytes=2 << 20,
        **connecting,
    )
    assert ProducerConfig.from_mapping(LIBRDKAFKA) == ProducerConfig(
        buffer_memory=1 << 20, linger_ms=10, acks=-1, **connecting
    )


def test_variables_of_the_environment_with_a_prefix() -> None:
    environment = {
        "HOME": "/root",
        "ACKS": "nonsense",
        "AIOKC_BOOTSTRAP_SERVERS": "kafka:9092",
        "AIOKC_GROUP_ID": "billing",
        "AIOKC_SESSION_TIMEOUT_MS": "120000",
        "AIOKC_ENABLE_AUTO_COMMIT": "False",
        "AIOKC_PARTITION_ASSIGNMENT_STRATEGY": "range, roundrobin",
        "AIOKC_SASL_MECHANISM": "OAUTHBEARER",
        "AIOKC_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": "file:///run/token",
        "AIOKC_SASL_LOGIN_REFRESH_WINDOW_FACTOR": "0.5",
        "AIOKC_LINGER_MS": "7",
        "AIOKC_NATIVE": "0",
        "AIOKC_SERVICE_HOST": "10.0.0.1",
        "AIOKC_WEB_SERVICE_PORT_HTTP": "80",
        "AIOKC_PORT_80_TCP_ADDR": "10.0.0.1",
    }
    assert ConsumerConfig.from_mapping(environment, prefix="AIOKC_") == ConsumerConfig(
        bootstrap_servers="kafka:9092",
        group_id="billing",
        session_timeout_ms=120_000,
        enable_auto_commit=False,
        partition_assignment_strategy=["range", "roundrobin"],
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="file:///run/token",
        sasl_login_refresh_window_factor=0.5,
    )
    assert ProducerConfig.from_mapping(environment, prefix="AIOKC_").linger_ms == 7
    assert ConsumerConfig.from_mapping({"BILLING_KAFKA_GROUP_ID": "g"}, prefix="BILLING_KAFKA_").group_id == "g"


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong = {
        "AIOKC_GRUOP_ID": "billing",
        "AIOKC_SESSION_TIMEOUT_MS": "long",
        "AIOKC_CHECK_CRCS": "maybe",
        "AIOKC_DEBUG": "all",
        "AIOKC_SASL_OAUTHBEARER_EXTENSIONS": "hunter2",
        "AIOKC_MAX_POLL_RECORDS": "10",
    }
    with pytest.raises(ConfigError) as told:
        ConsumerConfig.from_mapping(wrong, prefix="AIOKC_")
    assert set(str(told.value).splitlines()) == {
        "5 options are wrong:",
        "- unknown option 'AIOKC_GRUOP_ID'; did you mean 'group_id'?",
        "- AIOKC_SESSION_TIMEOUT_MS='long' must be a whole number",
        "- AIOKC_CHECK_CRCS='maybe' must be true or false",
        "- unknown option 'AIOKC_DEBUG': leave it out, and set the level of Python's logger 'aiokc'",
        "- AIOKC_SASL_OAUTHBEARER_EXTENSIONS must be key=value, or several with commas between them",
    }
    with pytest.raises(ConfigError, match=r"^unknown option 'sasl.jaas.config': here these are options of their own"):
        ConsumerConfig.from_mapping({"sasl.jaas.config": "x"})
    with pytest.raises(ConfigError, match=r"^1000 options are wrong:\n(- unknown option '\d+'\n){20}- and 980 more$"):
        ProducerConfig.from_mapping({str(number): "" for number in range(1000)})


def test_what_is_wrong_with_values_is_told_as_of_keywords() -> None:
    with pytest.raises(ConfigError, match="max_poll_records=0 must be at least 1"):
        ConsumerConfig.from_mapping({"max.poll.records": "0"})
    for fraction in ("0.5", 0.5):
        with pytest.raises(ConfigError, match=r"^queue.buffering.max.ms=0.5 must be a whole number of milliseconds$"):
            ProducerConfig.from_mapping({"queue.buffering.max.ms": fraction})
    for endless in ("inf", "nan", float("inf"), "9" * 5_000):
        with pytest.raises(ConfigError, match=r"^batch.size=(inf|nan) must be a whole number$"):
            ProducerConfig.from_mapping({"batch.size": endless})
    with pytest.raises(ConfigError, match="check_crcs must be bool, not int"):
        ConsumerConfig.from_mapping({"check.crcs": 1})
    with pytest.raises(ConfigError, match="options must be a mapping of names to values, not str"):
        ConsumerConfig.from_mapping("kafka:9092")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="unknown option 5"):
        ConsumerConfig.from_mapping({5: "x"})  # type: ignore[dict-item]


def test_a_name_of_our_own_wins() -> None:
    both = {"linger.ms": "1", "queue.buffering.max.ms": "2"}
    for given in (both, dict(reversed(both.items()))):
        assert ProducerConfig.from_mapping(given).linger_ms == 1


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("acks", "All", "all"),
        ("acks", "0", 0),
        ("ssl.endpoint.identification.algorithm", "none", ""),
        ("ssl.certificate.location", "~/client.pem", Path("~/client.pem").expanduser()),
        ("ssl.key.location", "/etc/key.pem", Path("/etc/key.pem")),
        ("ssl.keystore.location", "~/client.pem", str(Path("~/client.pem").expanduser())),
        ("compression.level", "3", 3),
        ("compression.level", "-1", None),  # librdkafka's default; zstd has such a level
        ("Compression.Level", -1, None),
        ("compression_level", "-1", -1),
        ("linger.ms", "5.0", 5),
        ("linger.ms", 5.0, 5),
        ("queue.buffering.max.kbytes", 2.0, 2048),
        ("compression.codec", " LZ4 ", "lz4"),
        ("sasl_oauthbearer_extensions", "a=1, b=2", {"a": "1", "b": "2"}),
        ("client.id", "billing", "billing"),
    ],
)
def test_texts_become_values(option: str, text: str | float, value: Any) -> None:
    from aiokc.config.written.other_names import our_name
    from aiokc.config.written.values import typed

    found = typed(ProducerConfig.__dataclass_fields__[our_name(option)], text, option)
    assert (found, type(found)) == (value, type(value))


def test_names_that_other_clients_take_in_any_case() -> None:
    config = ConsumerConfig.from_mapping({"group.protocol": "CONSUMER", "isolation.level": "Read_Committed"})
    assert (config.group_protocol, config.isolation_level) == ("consumer", "read_committed")
    for text, policy in (("EARLIEST", "earliest"), (" Latest ", "latest"), ("None", "none"), ("End", "latest")):
        assert ConsumerConfig.from_mapping({"auto.offset.reset": text}).auto_offset_reset == policy
    by_duration = {"auto.offset.reset": "by_duration:PT1H"}
    assert ConsumerConfig.from_mapping(by_duration).auto_offset_reset == "by_duration:PT1H"


@pytest.mark.parametrize("name", [*OTHER_NAMES])
def test_other_names_lead_to_options_that_exist(name: str) -> None:
    known = ConsumerConfig.__dataclass_fields__ | ProducerConfig.__dataclass_fields__
    assert OTHER_NAMES[name] in known
    assert name not in known


def test_no_traceback_holds_a_password() -> None:
    """Tools that report errors show the variables of each frame; those of the caller are its own."""
    secrets = {
        "sasl.password": "hunter2",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "ssl.key.pem": "-----BEGIN PRIVATE KEY-----hunter2",
        "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----",
    }
    config = ConsumerConfig.from_mapping(secrets)
    assert config.sasl_plain_password == Secret("hunter2")
    assert isinstance(config.ssl_keystore_key, Secret)
    assert "hunter2" not in repr(config)
    for wrong in (
        {"max.poll.records": "0"},
        {"max.poll.records": "x"},
        {"unknown": "x"},
        {"sasl.password": b"hunter2"},
        {"ssl.key.location": f"eyJ{'hunter2' * 12}"},
        {"sasl.oauthbearer.token.endpoint.url": "https://u:hunter2@h/"},
        {"sasl.oauthbearer.token.endpoint.url": f"file:eyJ{'hunter2' * 12}"},
        {"ssl.ca.location": "~nobody-has-this-name/ca.pem"},
        {"ssl.key.location": "~nobody-has-this-name/key.pem"},
    ):
        with pytest.raises(ConfigError) as raised:
            ConsumerConfig.from_mapping({**secrets, **wrong})
        frames = traceback.TracebackException.from_exception(raised.value, capture_locals=True).stack
        inside = [frame for frame in frames if "test_written_options" not in frame.filename]
        assert inside
        assert "hunter2" not in "".join(str(frame.locals) for frame in inside)
        assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("client", [Client, Producer, Consumer])
def test_a_dictionary_in_the_place_of_options(client: Any) -> None:
    """As other clients take it."""
    with pytest.raises(
        ConfigError, match=r"'bootstrap.servers'; did you mean .*from_mapping\(\) takes names with dots"
    ):
        client(**{"bootstrap.servers": "kafka:9092"})
    with pytest.raises(ConfigError, match=r"by keyword.* as \*\*options, or .*Config\.from_mapping\("):
        client({"bootstrap.servers": "kafka:9092", "sasl.password": "hunter2"})
