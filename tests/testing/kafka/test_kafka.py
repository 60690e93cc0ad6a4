"""The local Kafka: tests and benchmarks rely on it, so it must start, fail and recover, and leave nothing behind."""

from __future__ import annotations

import shutil
import socket
import sys
from pathlib import Path

import pytest

from aiokc import Client
from aiokc.error_codes import ErrorCode
from aiokc.errors import BrokerError
from aiokc.testing.kafka import LocalKafka, LocalKafkaError, local_kafka, run_tool
from aiokc.testing.kafka.admin import describe
from aiokc.testing.kafka.class_archive import write_class_archive
from aiokc.testing.kafka.jars import OLD_VERSIONS, libs
from aiokc.testing.reserved_port import ReservedPort
from tests.producing import Message, Stored, add_partitions, produce, produce_in_transaction
from tests.suite.peers.java_programs import QUICK_JVM

# Most of these start brokers of their own: half a minute each, where others use the processors.
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


def test_a_new_topic_has_a_leader_for_each_partition(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=3)

    view = describe(kafka.bootstrap, [topic_name])

    assert [info.leader for info in view.topics[topic_name].partitions.values()] == [1, 1, 1]
    assert view.brokers == {1: kafka.bootstrap}
    assert view.under_replicated == []


async def test_records_are_kept_however_old_they_are_unless_the_topic_says_otherwise(
    kafka: LocalKafka, topic_name: str
) -> None:
    """A broker looks every few minutes which records it may delete by their timestamps."""
    own = f"{topic_name}-own"
    kafka.create_topic(topic_name)
    kafka.create_topic(own, config={"retention.ms": "3600000"})
    async with Client(bootstrap_servers=kafka.bootstrap) as client:
        found = await client.topic_configs([topic_name, own])
    settings = [found[topic] for topic in (topic_name, own)]
    assert [one["retention.ms"].value for one in settings if isinstance(one, dict)] == ["-1", "3600000"]


def test_refusals_of_the_broker_are_errors_with_its_words(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    with pytest.raises(BrokerError, match=f"Topic '{topic_name}' already exists") as refused:
        kafka.create_topic(topic_name)
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
    with pytest.raises(BrokerError, match="INVALID_CONFIG"):
        kafka.create_topic(f"{topic_name}-2", config={"retention.ms": "for ever"})


def test_kafkas_own_tools_see_what_was_produced(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    produce(kafka.bootstrap, topic_name, [Message(b"a", partition=1), Message(b"b", partition=1)])

    words = ("--bootstrap-server", kafka.bootstrap, "--topic", topic_name)
    listed = run_tool("org.apache.kafka.tools.GetOffsetShell", *words, jvm=QUICK_JVM)

    assert listed.splitlines() == [f"{topic_name}:0:0", f"{topic_name}:1:2"]


def test_a_tool_that_fails_says_why(kafka: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError, match=r"(?s)NoSuchTool ended with code 1:.*NoSuchTool"):
        run_tool("org.apache.kafka.tools.NoSuchTool", jvm=QUICK_JVM)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_stored_where_the_producer_says(kafka: LocalKafka, topic_name: str, codec: str) -> None:
    kafka.create_topic(topic_name, partitions=2)
    messages = [
        Message(b"first", key=b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_000, partition=1),
        Message(None, key=b"k", partition=0),
        Message(b"", partition=1),
    ]

    assert produce(kafka.bootstrap, topic_name, messages, codec=codec) == [Stored(1, 0), Stored(0, 0), Stored(1, 1)]


def test_a_transaction_takes_one_offset_more(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    aborted = produce_in_transaction(kafka.bootstrap, topic_name, [b"a", b"b"], commit=False)
    committed = produce_in_transaction(kafka.bootstrap, topic_name, [b"c"])
    assert (aborted, committed) == ([Stored(0, 0), Stored(0, 1)], [Stored(0, 3)])


def test_topics_can_grow(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name)
    add_partitions(kafka.bootstrap, topic_name, 3)
    assert set(describe(kafka.bootstrap, [topic_name]).topics[topic_name].partitions) == {0, 1, 2}


@pytest.mark.timeout(150)
def test_a_killed_leader_is_replaced_and_comes_back(three_nodes: LocalKafka, topic_name: str) -> None:
    three_nodes.create_topic(topic_name, partitions=3, replication_factor=3)
    victim = three_nodes.leader_of(topic_name, 0)

    victim.kill()

    assert not victim.running
    with pytest.raises(LocalKafkaError, match=f"node {victim.id} has ended"):
        three_nodes.check()
    with pytest.raises(LocalKafkaError, match=f"node {victim.id} is not running"):
        victim.terminate()
    produce(three_nodes.bootstrap, topic_name, [Message(b"after", partition=0)])  # waits for the new leader
    assert three_nodes.leader_of(topic_name, 0) is not victim
    three_nodes.create_topic(f"{topic_name}-2", replication_factor=2)
    three_nodes.heal()
    assert set(describe(victim.address).brokers) == {1, 2, 3}
    assert describe(victim.address, None).under_replicated == []


def test_a_paused_node_answers_again_when_it_is_resumed(three_nodes: LocalKafka) -> None:
    node = three_nodes.node(2)
    node.pause()
    with pytest.raises(TimeoutError):
        describe(node.address, timeout=0.2)
    node.resume()
    assert 2 in describe(node.address, timeout=30).brokers


def test_a_paused_node_can_be_stopped_and_started(three_nodes: LocalKafka) -> None:
    node = three_nodes.node(3)
    node.pause()
    node.terminate()
    with pytest.raises(ConnectionRefusedError):
        describe(node.address)
    node.start()
    assert node.running
    with pytest.raises(LocalKafkaError, match="node 3 is running already"):
        node.launch()
    three_nodes.heal()


def test_a_listener_more_is_advertised_where_the_test_says(three_nodes: LocalKafka) -> None:
    advertised = three_nodes.bootstrap_of("FAULTY").split(",")
    actual = [f"127.0.0.1:{int(address.rpartition(':')[2]) - 1}" for address in advertised]

    for address in actual:
        assert sorted(describe(address).brokers.values()) == sorted(advertised)
    assert sorted(describe(three_nodes.node(1).address).brokers.values()) == sorted(three_nodes.bootstrap.split(","))
    with pytest.raises(LocalKafkaError, match="no listener SECURE"):
        three_nodes.bootstrap_of("SECURE")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere ports cannot be kept from others")
def test_the_port_of_a_dead_broker_is_given_to_no_other_process() -> None:
    port = ReservedPort()
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", port.number))
    with socket.socket() as broker:
        broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        broker.bind(("127.0.0.1", port.number))
        broker.listen()
    port.release()


def test_an_existing_broker_stands_in_for_a_single_node(
    kafka: LocalKafka, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOKC_BOOTSTRAP", kafka.bootstrap)
    with LocalKafka() as other:
        other.create_topic(topic_name)
        assert other.bootstrap == kafka.bootstrap
        with pytest.raises(LocalKafkaError, match="its nodes are not ours"):
            other.node(1)
    assert topic_name in describe(kafka.bootstrap, None).topics


def test_a_missing_existing_broker_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_kafka, "_EXTERNAL_SECONDS", 0.0)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AIOKC_BOOTSTRAP", address)
        with pytest.raises(LocalKafkaError, match=f"AIOKC_BOOTSTRAP={address}: .*refused"):
            LocalKafka().start()


def test_the_start_is_tried_again_when_a_port_was_taken(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        given: list[int] = []

        class FirstTaken(ReservedPort):
            def __init__(self) -> None:
                super().__init__()
                self.number = self.number if given else taken
                given.append(self.number)

        monkeypatch.setattr(local_kafka, "ReservedPort", FirstTaken)
        with LocalKafka(keep=True) as kafka:
            assert given[0] == taken
            assert len(given) == 4  # two attempts, a port for clients and one for the controller each
            assert set(describe(kafka.bootstrap).brokers) == {1}
            kafka.create_topic("kept")
    assert kafka.folder is not None
    assert (kafka.folder / "node-1" / "data" / "kept-0").is_dir(), "data that are kept outlive the broker"
    assert [path.name for path in kafka.folder.iterdir()] == ["node-1"]
    assert list(home.glob("run-*")) == [kafka.folder], "nothing is left of the first attempt"


def test_a_broker_that_does_not_start_leaves_its_log(home: Path) -> None:
    kafka = LocalKafka(jvm=["-XX:+NoSuchFlag"])
    with pytest.raises(LocalKafkaError, match=r"(?s)node 1 ended while .*Unrecognized VM option 'NoSuchFlag'") as error:
        kafka.start()
    (log,) = home.glob("run-*/node-1/kafka.log")
    assert str(log) in str(error.value)
    with pytest.raises(LocalKafkaError, match="not started"):
        _ = kafka.bootstrap


@pytest.mark.long
def test_a_broker_starts_from_the_archive_of_its_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / libs().parent.name
    shutil.copytree(libs().parent, folder, ignore=shutil.ignore_patterns("classes-*"))
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path))
    write_class_archive()
    (archive,) = folder.glob("classes-*")
    written = archive.stat().st_mtime_ns
    write_class_archive()
    assert archive.stat().st_mtime_ns == written
    with LocalKafka(config={"num.partitions": "1"}) as kafka:
        assert str(archive) in Path(f"/proc/{kafka.node(1).pid}/maps").read_text()
    assert run_tool("kafka.Kafka", "--version").split() == ["4.3.1"], "a tool says nothing about the archive"


@pytest.mark.long
@pytest.mark.timeout(600)  # its jars may have to be fetched
@pytest.mark.parametrize("version", OLD_VERSIONS)
def test_an_old_kafka_starts_and_survives_a_crash(version: str) -> None:
    with LocalKafka(version=version) as old:
        folder = old.folder
        old.create_topic("events", 2)
        assert produce(old.bootstrap, "events", [Message(b"a", partition=1)]) == [Stored(1, 0)]
        old.node(1).kill()
        old.heal()  # with ZooKeeper, once the session of the dead one is over
        assert produce(old.bootstrap, "events", [Message(b"b", partition=1)]) == [Stored(1, 1)]
    assert folder is not None
    assert not folder.exists()


def test_before_3_3_there_is_a_zookeeper_and_no_controller(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = LocalKafka(version="2.8.2")
    monkeypatch.setattr(kafka, "_reserve", iter([9092, 2181]).__next__)
    kafka._make_nodes()
    try:
        assert {"zookeeper.connect": "127.0.0.1:2181", "broker.id": "1"}.items() <= _properties(kafka.folder).items()
        assert "process.roles" not in _properties(kafka.folder)
        with pytest.raises(LocalKafkaError, match="has ended"):
            kafka.check()
    finally:
        kafka.stop()


def _properties(folder: Path | None) -> dict[str, str]:
    assert folder is not None
    lines = (folder / "node-1" / "server.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)
