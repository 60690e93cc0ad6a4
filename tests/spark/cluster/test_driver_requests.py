"""How many requests the driver sends, counted at the brokers; its clock runs only while it sleeps."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from aiokc import EARLIEST, LATEST, Client, ClientConfig, ErrorCode, TopicPartition
from aiokc.client.cluster import cluster_client
from aiokc.errors import BrokerError, NoBrokersAvailable, RequestTimedOut, UnknownTopic
from aiokc.records import NewRecord, encode_batch
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from spark_source.cluster import driver
from spark_source.cluster.commit_back import CommitBack
from spark_source.cluster.driver import DriverCluster
from spark_source.options.bounds import AtOffset
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.stream_plan import StreamPlan
from tests.suite.unused_faults import may_be_unused


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Driver:
    """A stream's driver over a cluster that counts the requests of its clients, by the name of the API."""

    def __init__(self, cluster: Cluster, **options: object) -> None:
        self.seen: Counter[str] = Counter()
        for api in ApiKey:
            may_be_unused(cluster.intercept(api, ErrorCode.NONE, where=self._count))
        config = ClientConfig(bootstrap_servers=cluster.bootstrap)
        self.options = SourceOptions(
            config,
            subscribe("events"),
            AtOffset("startingOffsets", EARLIEST),
            **options,  # type: ignore[arg-type]
        )
        self.clock = Clock()
        self.cluster = DriverCluster(config, attempts=3, retry_ms=1, sleep=self.clock.sleep)
        self.plan = StreamPlan(self.options, self.cluster, clock=self.clock, sleep=self.clock.sleep)

    def _count(self, exchange: Exchange) -> bool:
        self.seen[type(exchange.request).__name__.removesuffix("Request")] += 1
        return False


@pytest.fixture(autouse=True)
def patient_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a commit may take longer than a second."""
    monkeypatch.setattr(driver, "_COMMIT_MS", 30_000)


@pytest.fixture(params=[1, 3, 10])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=request.param, topics={"events": 10}).in_thread() as running:
        yield running


def test_an_idle_stream_sends_a_broker_at_most_five_requests_a_second(cluster: Cluster) -> None:
    """Four brokers get so many in all, and of more each gets one."""
    driver = Driver(cluster)
    with driver.cluster:
        end = driver.plan.latest(driver.plan.initial())
        driver.plan.latest(end)  # its metadata may be due
        parts = driver.cluster.topics(["events"])["events"].partitions.values()
        driver.seen.clear()
        began = driver.clock.now

        while driver.clock.now < began + 60:
            assert driver.plan.latest(end) is end
            driver.plan.known_ends()
            driver.clock.sleep(0.01)

    assert set(driver.seen) == {"ListOffsets", "Metadata"}
    leaders = {part.leader for part in parts}
    assert 60 < driver.seen.total() <= 60 * (max(4, len(leaders)) + 1)


def test_a_topic_that_was_deleted_costs_an_idle_stream_no_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """In real time, for seconds: the requests that its client sends by itself count, too."""
    monkeypatch.setattr(driver, "_PATIENCE_MS", 300)
    monkeypatch.setattr(cluster_client, "_NEW_TOPIC_SECONDS", 0.3)
    with Cluster(topics={"events": 1, "other": 1}).in_thread() as cluster:
        stream = Driver(cluster, fail_on_data_loss=False, offset_retry_ms=1)
        plan = StreamPlan(replace(stream.options, choice=subscribe("events", "other")), stream.cluster)
        with stream.cluster:
            end = plan.latest(plan.initial())
            cluster.delete_topic("events")
            while "events" in end:  # the partitions are remembered for two seconds
                end = plan.latest(end)
            time.sleep(1)  # a refresh may be due
            stream.seen.clear()
            began = time.monotonic()

            while time.monotonic() < began + 3:
                assert plan.latest(end) is end
            lasted = time.monotonic() - began

            assert stream.seen["Metadata"] <= lasted / 2 + 2, (
                "of the topic that is left: one each two seconds, and the client's own"
            )
            assert stream.seen["ListOffsets"] <= 4 * lasted + 1, "one each quarter of a second, and the first"
            assert set(stream.seen) == {"Metadata", "ListOffsets"}


def test_a_batch_costs_the_driver_two_rounds_of_requests(cluster: Cluster) -> None:
    driver = Driver(cluster)
    with driver.cluster:
        start = driver.plan.initial()
        end = driver.plan.latest(start)
        cluster.append("events", b"x")
        driver.seen.clear()

        after = driver.plan.latest(end)
        assert list(driver.plan.ranges(end, after).values()) == [(0, 1)]

    # The ends of all logs, then the beginning of the one to read.
    leaders = len({cluster.leader("events", part) for part in range(10)})
    assert driver.seen["ListOffsets"] == leaders + 1


def test_a_planning_call_is_repeated_as_the_options_say() -> None:
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        driver = Driver(cluster)
        with driver.cluster:
            driver.plan.initial()
            refused = cluster.intercept(ApiKey.LIST_OFFSETS, ErrorCode.INVALID_REQUEST)
            with pytest.raises(BrokerError, match="INVALID_REQUEST"):
                driver.plan.latest({"events": {"0": 0}})
            assert refused.hits == 1  # what can't pass is not tried again
            refused.cancel()
        for timeout_ms in (1_000, 4_000, 20_000):
            try:
                check_a_third_attempt(cluster, driver.clock, timeout_ms)
                return
            except (RequestTimedOut, NoBrokersAvailable) as error:  # on a busy machine the third one was too slow
                last = error
        raise last


def check_a_third_attempt(cluster: Cluster, clock: Clock, timeout_ms: int) -> None:
    impatient = ClientConfig(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=timeout_ms)
    with DriverCluster(impatient, attempts=3, retry_ms=1000, sleep=clock.sleep) as calls:
        calls.topics(["events"])
        silent = may_be_unused(cluster.intercept(ApiKey.LIST_OFFSETS, drop(), times=2))
        slept = clock.now
        try:
            assert calls.list_offsets({TopicPartition("events", 0): EARLIEST}) == {TopicPartition("events", 0): 0}
        finally:
            silent.cancel()

        assert silent.hits == 2
        assert clock.now - slept == 2.0


def test_high_watermarks_are_asked_for_by_the_connections_that_are_there() -> None:
    first, connected = TopicPartition("events", 0), list[Exchange]()

    def watch(exchange: Exchange) -> bool:
        connected.append(exchange)
        return False

    with Cluster(topics={"events": 1}).in_thread() as cluster:
        batch = encode_batch([NewRecord(b"x")], producer_id=7, transactional=True)
        partition = cluster._partition(*first)
        partition.log.append(batch, partition.leader_epoch)  # of a transaction that stays open
        config = ClientConfig(bootstrap_servers=cluster.bootstrap, isolation_level="read_committed")
        with DriverCluster(config) as calls:
            assert calls.list_offsets({first: LATEST}) == {first: 0}
            may_be_unused(cluster.intercept(ApiKey.API_VERSIONS, ErrorCode.NONE, where=watch))

            assert calls.high_watermarks([first]) == calls.high_watermarks([first]) == {first: 1}

            assert not connected
            assert calls.list_offsets({first: LATEST}) == {first: 0}


def test_a_commit_does_not_hold_up_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where the client does not keep its deadline."""
    monkeypatch.setattr(driver, "_GRACE", 0.2)
    monkeypatch.setattr(driver, "_COMMIT_MS", 100)

    async def hang(*_: object, **__: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(Client, "commit", hang)
    with (
        Cluster(topics={"events": 1}).in_thread() as cluster,
        DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap)) as calls,
        pytest.raises(RequestTimedOut, match=r"committing offsets took longer than 0\.3 s"),
    ):
        calls.commit("g", {TopicPartition("events", 0): 1})


def test_a_deleted_topic_does_not_hold_up_list_offsets_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    both = dict.fromkeys([TopicPartition("events", 0), TopicPartition("other", 0)], EARLIEST)
    # On a busy machine the broker does not answer within so short a time. Then the call lasts a minute, and the client
    # knows that the topic is gone: only a new one shows what the next time does.
    for patience_ms in (300, 4_500):
        monkeypatch.setattr(driver, "_PATIENCE_MS", patience_ms)
        with (
            Cluster(topics={"events": 1, "other": 1}).in_thread() as cluster,
            DriverCluster(ClientConfig(bootstrap_servers=cluster.bootstrap)) as calls,
        ):
            assert calls.list_offsets(both) == dict.fromkeys(both, 0)
            cluster.delete_topic("events")
            began = time.monotonic()
            with pytest.raises(UnknownTopic, match="'events'"):
                calls.list_offsets(both)
            if time.monotonic() - began < 30:
                slow = cluster.intercept(ApiKey.LIST_OFFSETS, drop(), times=1)
                assert calls.list_offsets({TopicPartition("other", 0): EARLIEST}) == {TopicPartition("other", 0): 0}
                assert slow.hits == 1
                return
    pytest.fail("each call has lasted half a minute or more")


def test_offsets_are_committed_once_and_failures_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        driver = Driver(cluster, group_id="g", commit_offsets=True)
        with driver.cluster:
            back = CommitBack(driver.options, driver.cluster, clock=driver.clock)
            start = driver.plan.initial()
            back.began(start)
            back.finished(start)
            assert driver.cluster.committed("g", [TopicPartition("events", 0)]) == {TopicPartition("events", 0): None}
            commits = cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            for _ in range(3):
                back.finished({"events": {"0": 5}})
            assert commits.hits == 1
            assert caplog.text.count("the commit for group 'g' failed") == 1
            driver.seen.clear()
            driver.clock.sleep(10)
            for _ in range(3):
                back.finished({"events": {"0": 5}, "__aiokc_from__": {"events": {"0": 0}}})
            assert driver.seen["OffsetCommit"] == 1
            assert driver.cluster.committed("g", [TopicPartition("events", 0)]) == {TopicPartition("events", 0): 5}


def test_commit_back_after_a_restart_in_batch_0() -> None:
    """Spark asks where the query starts, repeats batch 0, which ends before that, and then a batch ends just there."""
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        driver = Driver(cluster, group_id="g", commit_offsets=True)
        with driver.cluster:
            back = CommitBack(driver.options, driver.cluster, clock=driver.clock)
            back.began({"events": {"0": 4}})
            for end in 3, 4, 4:
                back.finished({"events": {"0": end}})
            assert driver.seen["OffsetCommit"] == 2
            assert driver.cluster.committed("g", [TopicPartition("events", 0)]) == {TopicPartition("events", 0): 4}


def test_the_end_of_a_recreated_topic_is_committed_although_it_is_where_the_former_one_ended() -> None:
    """The brokers have deleted with the topic what the group had committed."""
    first = TopicPartition("events", 0)
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        driver = Driver(cluster, group_id="g", commit_offsets=True, fail_on_data_loss=False)
        with driver.cluster:
            back = CommitBack(driver.options, driver.cluster, clock=driver.clock)
            end = driver.plan.initial()
            for _ in range(2):
                cluster.append("events", b"x")
                driver.clock.sleep(10)
                end = driver.plan.latest(end)
                back.finished(end)
            assert driver.cluster.committed("g", [first]) == {first: 2}
            cluster.recreate_topic("events")
            cluster.append("events", b"y", b"y")
            driver.clock.sleep(10)
            again = driver.plan.latest(end)
            assert again["events"] == end["events"]
            assert driver.cluster.committed("g", [first]) == {first: None}
            driver.seen.clear()

            for _ in range(3):
                back.finished(again)

            assert driver.cluster.committed("g", [first]) == {first: 2}
            assert driver.seen["OffsetCommit"] == 1
