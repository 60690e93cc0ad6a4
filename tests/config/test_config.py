"""Options: checked once, with the nearest known name for a wrong one."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from aiokc.assignor import Assignor, Group
from aiokc.config import (
    ClientConfig,
    ClientOptions,
    ClusterConfig,
    ClusterOptions,
    ConsumerConfig,
    ConsumerOptions,
    ProducerConfig,
    ProducerOptions,
    configured,
    parse_addresses,
)
from aiokc.errors import ConfigError
from aiokc.interceptor import ConsumerInterceptor
from aiokc.types import TopicPartition


class Mine(Assignor):
    name = "mine"

    def assign(self, group: Group) -> dict[str, list[TopicPartition]]:
        return {member_id: [] for member_id in group.members}


class RoundRobinPartitionAssignor:
    """As aiokafka has it: no instance of it would do, either."""

    name = "roundrobin"

    def assign(self, cluster: Any, members: Any) -> Any: ...


KIP_848: dict[str, Any] = {"group_protocol": "consumer"}


def test_assignors_of_ones_own_stand_beside_names() -> None:
    mine = Mine()
    assert ConsumerConfig(partition_assignment_strategy=["range", mine]).partition_assignment_strategy == (
        "range",
        mine,
    )


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ClusterConfig, ClusterOptions),
        (ClientConfig, ClientOptions),
        (ConsumerConfig, ConsumerOptions),
        (ProducerConfig, ProducerOptions),
    ],
)
def test_keywords_and_configuration_are_the_same_options(config: type[ClusterConfig], options: type[Any]) -> None:
    assert {field.name for field in fields(config)} == set(get_type_hints(options))
    for field in fields(config):
        assert get_type_hints(config)[field.name] == get_type_hints(options)[field.name], field.name


def test_defaults_are_those_of_the_java_client() -> None:
    config = ConsumerConfig()
    assert (config.session_timeout_ms, config.heartbeat_interval_ms, config.max_poll_interval_ms) == (
        45000,
        3000,
        300000,
    )
    assert (config.fetch_max_bytes, config.max_partition_fetch_bytes, config.fetch_max_wait_ms) == (
        52428800,
        1048576,
        500,
    )
    assert (config.max_poll_records, config.auto_offset_reset, config.enable_auto_commit) == (500, "latest", True)
    assert (config.request_timeout_ms, config.default_api_timeout_ms, config.retry_backoff_ms) == (30000, 60000, 100)
    assert (config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms) == (10000, 30000)


def test_a_call_may_take_longer_than_32_bits_can_tell() -> None:
    """No request carries the deadline of a call."""
    assert ConsumerConfig(default_api_timeout_ms=10**10).default_api_timeout_ms == 10**10


@pytest.mark.parametrize(
    ("given", "addresses"),
    [
        ("a:1", (("a", 1),)),
        ("a", (("a", 9092),)),
        (" a:1 , b:2,", (("a", 1), ("b", 2))),
        (["a:1", "[::1]:2", "[::1]"], (("a", 1), ("::1", 2), ("::1", 9092))),
        (["a:1, b:2", "c,"], (("a", 1), ("b", 2), ("c", 9092))),
    ],
)
def test_bootstrap_servers(given: str | list[str], addresses: tuple[tuple[str, int], ...]) -> None:
    assert parse_addresses(given) == addresses
    config = ClientConfig(bootstrap_servers=given)
    assert hash(config) == hash(ClientConfig(bootstrap_servers=given if isinstance(given, str) else tuple(given)))
    if isinstance(given, list):
        given.clear()  # it is the caller's
    assert config.addresses == addresses


@pytest.mark.parametrize(
    "given",
    [
        "",
        ",",
        "a:",
        "a:b",
        "a:0",
        "a:70000",
        pytest.param("a:" + "9" * 5000, id="a:999…"),
        ":9092",
        "kafka://a:1",
        "::1:9092",
        [],
    ],
)
def test_wrong_bootstrap_servers(given: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        ClientConfig(bootstrap_servers=given)


@pytest.mark.parametrize(
    "given",
    [
        "me:canary@h:9092",
        "h:1,canary@h:2",
        "SASL_SSL://me:canary@h:9092",
        "me:canary,1@h:9092",
        ["me:canary@h"],
        ["me:canary,1@h:9092"],
        ["me:canary", "1@h:9092"],
    ],
)
def test_credentials_among_the_bootstrap_servers_are_not_shown(given: str | list[str]) -> None:
    with pytest.raises(ConfigError, match="bootstrap_servers has an entry with '@': give 'host:port'") as raised:
        ClientConfig(bootstrap_servers=given)
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grup_id": "g"}, "unknown option 'grup_id'; did you mean 'group_id'"),
        ({"bootstrap.servers": "a:1"}, "did you mean 'bootstrap_servers'"),
        ({"max_poll_records": "500"}, "max_poll_records must be int, not str"),
        ({"max_poll_records": True}, "max_poll_records must be int, not bool"),
        ({"max_poll_records": 0}, "max_poll_records=0 must be at least 1"),
        ({"enable_auto_commit": "false"}, "enable_auto_commit must be bool"),
        ({"auto_offset_reset": "smallest"}, "must be one of 'earliest', 'latest', 'none'"),
        ({"isolation_level": "committed"}, "must be one of 'read_uncommitted', 'read_committed'"),
        ({"group_id": ""}, "group_id must not be empty"),
        ({"group_id": "g\ud800"}, "group_id='g.ud800' is not Unicode text"),
        ({"group_instance_id": ""}, "group_instance_id='': 1 to 249 of the characters"),
        ({"group_instance_id": "a b"}, "group_instance_id='a b': 1 to 249"),
        ({"group_instance_id": ".."}, "leave it out for a dynamic member"),
        ({"group_instance_id": "a" * 250}, "1 to 249 of the characters"),
        ({"request_timeout_ms": 1 << 31}, "request_timeout_ms=2147483648 must be at most 2147483647"),
        ({"client_id": "é" * 16_384}, "client_id has 32768 bytes, and must have at most 32767"),
        ({"heartbeat_interval_ms": 45000}, "must be smaller than session_timeout_ms"),
        ({"session_timeout_ms": 1 << 31}, "session_timeout_ms=2147483648 must be at most 2147483647"),
        ({"max_poll_interval_ms": 1 << 31}, "max_poll_interval_ms=2147483648 must be at most 2147483647"),
        ({"fetch_max_bytes": 1 << 31}, "fetch_max_bytes=2147483648 must be at most 2147483647"),
        ({"fetch_max_wait_ms": 30000}, "must be smaller than request_timeout_ms"),
        ({"retry_backoff_ms": 2000}, "retry_backoff_max_ms=1000 must be at least 2000"),
        (
            {"socket_connection_setup_timeout_ms": 40_000},
            "socket_connection_setup_timeout_max_ms=30000 must be at least 40000",
        ),
        ({"partition_assignment_strategy": []}, "at least one assignor"),
        ({"partition_assignment_strategy": [1]}, "must hold names, such as 'range', and aiokc.Assignor objects only"),
        ({"partition_assignment_strategy": [Mine]}, "holds the class Mine: give an instance of it"),
        (
            {"partition_assignment_strategy": [RoundRobinPartitionAssignor]},
            "must hold names, such as 'range', and .* objects only, not the class RoundRobinPartitionAssignor$",
        ),
        ({"interceptors": [ConsumerInterceptor]}, "holds the class ConsumerInterceptor: give an instance of it"),
        ({"interceptors": [Mine]}, "must hold aiokc.ConsumerInterceptor objects only, not the class Mine$"),
        ({"bootstrap_servers": [1]}, "must hold strings only"),
        ({"bootstrap_servers": 9092}, "bootstrap_servers must be"),
        ({"bootstrap_servers": None}, "bootstrap_servers must be a string, or a list of strings, not NoneType"),
        ({"client_rack": None}, "client_rack must be str, not NoneType .None.: leave it out for its default, ''$"),
        ({"value_serializer": str.encode}, "unknown option 'value_serializer': it is for a Producer"),
        ({"loop": None}, "unknown option 'loop': leave it out"),
        ({"resolve": "dns"}, "resolve must be an async function"),
        (
            {"partition_assignment_strategy": "range"},
            r"list of names and .*, not str .'range'.: give a list: \['range'\]$",
        ),
        ({"isolation_level": 1}, "isolation_level must be str, not int"),
        ({"auto_offset_reset": 1}, "auto_offset_reset must be str, not int"),
        ({"max_response_bytes": -1}, "max_response_bytes=-1 must be at least 0"),
        ({"sasl.mechanism": "PLAIN"}, "unknown option 'sasl.mechanism'; did you mean 'sasl_mechanism'"),
        ({"rebalance_timeout_ms": 1}, "unknown option 'rebalance_timeout_ms': here that is max_poll_interval_ms"),
        ({"group_protocol": "modern"}, "group_protocol='modern' must be one of 'classic', 'consumer', 'auto'"),
        (
            {**KIP_848, "session_timeout_ms": 30_000},
            r"session_timeout_ms has no meaning.*consumer\.session\.timeout",
        ),
        (
            {**KIP_848, "heartbeat_interval_ms": 1_000},
            r"heartbeat_interval_ms has no.*consumer\.heartbeat\.interval",
        ),
        (
            {**KIP_848, "partition_assignment_strategy": ["range"]},
            "the coordinator assigns: group_remote_assignor",
        ),
        ({**KIP_848, "partition_assignment_strategy": [Mine()]}, "partition_assignment_strategy has no meaning with"),
        ({**KIP_848, "group_remote_assignor": ""}, "group_remote_assignor must not be empty"),
        ({"group_remote_assignor": "range"}, "group_remote_assignor='range' needs group_protocol='consumer' or 'auto'"),
        (
            {"group_protocol": "auto", "group_remote_assignor": "range", "session_timeout_ms": 30_000},
            "group_remote_assignor='range' contradicts session_timeout_ms, with which group_protocol='auto' means",
        ),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configured(ConsumerConfig, None, options)


@pytest.mark.parametrize(
    ("options", "begins_with"),
    [
        ({}, "classic"),
        (KIP_848, "consumer"),
        ({"group_protocol": "auto"}, "auto"),
        ({"group_protocol": "auto", "group_remote_assignor": "range"}, "auto"),
        ({"group_protocol": "auto", "session_timeout_ms": 30_000}, "classic"),
        ({"group_protocol": "auto", "heartbeat_interval_ms": 1_000}, "classic"),
        ({"group_protocol": "auto", "partition_assignment_strategy": [Mine()]}, "classic"),
    ],
)
def test_an_option_that_only_the_classic_protocol_has_chooses_it(options: dict[str, Any], begins_with: str) -> None:
    assert configured(ConsumerConfig, None, options).effective_group_protocol == begins_with


def test_keywords_override_a_given_configuration() -> None:
    config = ConsumerConfig(group_id="g", max_poll_records=7)
    assert configured(ConsumerConfig, config, {"max_poll_records": 8}) == ConsumerConfig(
        group_id="g", max_poll_records=8
    )
    assert configured(ConsumerConfig, config, {}) == config


@pytest.mark.parametrize("given", ["localhost:9092", {"group_id": "g"}, ClientConfig()], ids=repr)
def test_what_is_no_configuration_is_told_so(given: Any) -> None:
    """As in Client("localhost:9092") or Consumer(config={...}). The content, perhaps a password, is not repeated."""
    with pytest.raises(ConfigError, match=f"config must be a ConsumerConfig, not {type(given).__name__}: give options"):
        configured(ConsumerConfig, given, {})


def test_what_follows_from_another_option_follows_it_when_that_is_replaced() -> None:
    config = configured(ConsumerConfig, ConsumerConfig(), {"fetch_max_bytes": 200 << 20})
    assert config.longest_response_bytes == (200 << 20) + (16 << 20)
    config = configured(ConsumerConfig, config, {"max_decompressed_batch_bytes": 300 << 20})
    assert config.longest_response_bytes == (300 << 20) + (16 << 20), "a batch that may be read must get through"
    assert configured(ConsumerConfig, config, {"max_response_bytes": 5000}).longest_response_bytes == 5000


@pytest.mark.parametrize(
    ("options", "room"),
    [
        ({}, 128 << 20),
        ({"fetch_max_bytes": 200 << 20}, 200 << 20),
        ({"max_response_bytes": 80 << 20}, 64 << 20),
        ({"max_response_bytes": 4 << 20}, 3 << 20),
        ({"max_response_bytes": 1}, 1),
    ],
)
def test_a_response_has_room_for_more_than_records(options: dict[str, Any], room: int) -> None:
    assert configured(ConsumerConfig, None, options).room_for_records == room


@pytest.mark.parametrize("mib", [1, 20, 47, 48, 49, 500])
def test_by_default_fetch_max_bytes_fit_into_a_response(mib: int) -> None:
    config = ConsumerConfig(fetch_max_bytes=mib << 20, max_decompressed_batch_bytes=1 << 20)
    assert config.room_for_records >= config.fetch_max_bytes


def test_extensions_of_a_token_are_a_copy() -> None:
    given = {"logicalCluster": "lkc-1"}
    config = ClientConfig(
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url="https://idp.example/token",
        sasl_oauthbearer_client_credentials_client_id="client",
        sasl_oauthbearer_client_credentials_client_secret="secret",
        sasl_oauthbearer_extensions=given,
    )
    given.clear()  # it is the caller's
    assert config.sasl_oauthbearer_extensions == {"logicalCluster": "lkc-1"}
    assert isinstance(hash(config), int)
