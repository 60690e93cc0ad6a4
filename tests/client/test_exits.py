"""SystemExit, KeyboardInterrupt and the like of the application's code: they leave the loop, and harm nobody else."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Coroutine, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from aiokc import (
    Client,
    Consumer,
    ConsumerInterceptor,
    ConsumerRecords,
    Observer,
    Producer,
    ProducerInterceptor,
    ProducerObserver,
    RebalanceListener,
    TopicPartition,
)
from aiokc.assignor import Assignment, Assignor, Claim, Group
from aiokc.errors import AssignmentFailed, UsageError
from aiokc.testing import Cluster
from aiokc.testing.security.jwt import unsecured_token

pytestmark = pytest.mark.timeout(60)

LOOPS = ["asyncio", *(["uvloop"] if importlib.util.find_spec("uvloop") is not None else [])]
EAGER: Any = vars(asyncio).get("eager_task_factory")  # Python 3.12
if EAGER is not None:
    LOOPS.append("asyncio with eager tasks")
EXITS = [SystemExit, KeyboardInterrupt]


class Foreign(BaseException):
    """As that of a test framework, whose fail() must not be caught by ``except Exception``."""


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    """A loop that may be left by an exit, and run on. What its exception handler is told fails the test."""
    loop: asyncio.AbstractEventLoop = asyncio.SelectorEventLoop()
    if request.param == "uvloop":
        loop.close()
        loop = importlib.import_module("uvloop").new_event_loop()
    if "eager" in request.param:
        loop.set_task_factory(EAGER)
    told: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda loop, context: told.append(context))
    try:
        yield loop
        assert told == []
    finally:
        loop.close()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics={"t": 2}).in_thread() as cluster:
        yield cluster


class Raising:
    """Code of the application, which raises an error once, when it comes to this place."""

    def __init__(self, where: str, error: type[BaseException]) -> None:
        self.where, self.error = where, error
        self.raised = 0
        self.over = asyncio.Event()
        self.goes_on = error not in EXITS  # an exit ends the run, and nothing else is to do so in the same iteration

    def _come_to(self, where: str) -> None:
        if where == self.where and not self.raised:
            self.raised += 1
            raise self.error


def _run(loop: asyncio.AbstractEventLoop, story: Coroutine[Any, Any, None], code: Raising) -> None:
    """Run ``story`` to its end: if the code exits, in a second run of the loop."""
    task = loop.create_task(story)
    if code.error in EXITS:
        with pytest.raises(code.error):
            loop.run_until_complete(task)
        code.goes_on = True
        code.over.set()
    loop.run_until_complete(task)
    assert code.raised == 1


# Producers


class Produces(Raising, ProducerObserver, ProducerInterceptor):
    """All hooks of a producer, and a task that waits for a record."""

    def __init__(self, where: str, error: type[BaseException]) -> None:
        super().__init__(where, error)
        self.called: list[Exception | None] = []

    def batch(self, *arguments: object) -> None:
        self._come_to("observer")

    def on_acknowledgement(self, *arguments: object) -> None:
        self._come_to("interceptor")

    def on_done(self, metadata: object, error: Exception | None) -> None:
        self.called.append(error)
        if len(self.called) == 4 and self.goes_on:
            self.over.set()
        self._come_to("callback")

    async def wait(self, producer: Producer) -> None:
        await producer.send_and_wait("t", b"", partition=0)
        self._come_to("task")


async def _sends(producer: Producer, code: Produces) -> None:
    await producer.start()
    await producer.partitions_for("t")
    waits = asyncio.get_running_loop().create_task(code.wait(producer))
    await asyncio.sleep(0)
    for partition in (0, 0, 0, 1):
        producer.send_soon("t", b"", partition=partition, on_done=code.on_done)
    await asyncio.wait([waits])
    if not waits.cancelled():
        waits.exception()  # the loop is not to tell of it
    await code.over.wait()


async def _goes_on(producer: Producer, code: Produces) -> None:
    async with asyncio.timeout(30):
        await producer.flush()
        assert (await producer.send_and_wait("t", b"", partition=0)).offset == 4
        await producer.stop()
    assert code.called == [None] * 4
    assert producer.metrics().failed_requests == 0  # the connection has not ended, and no answer was left unread


@pytest.mark.parametrize("where", ["callback", "task", "observer", "interceptor"])
@pytest.mark.parametrize("error", [*EXITS, Foreign, asyncio.CancelledError, GeneratorExit])
def test_what_code_at_a_producer_raises_harms_neither_the_connection_nor_other_records(
    loop: asyncio.AbstractEventLoop, cluster: Cluster, where: str, error: type[BaseException]
) -> None:
    """An exit leaves the run of the loop, and can go on in the next one; all else is logged, or the task's."""
    code = Produces(where, error)
    producer = Producer(
        bootstrap_servers=cluster.bootstrap, linger_ms=0, observer=code, interceptors=[code], client_id="exits"
    )
    _run(loop, _sends(producer, code), code)
    loop.run_until_complete(_goes_on(producer, code))
    _end_tasks(loop)


def test_the_main_task_may_exit_in_the_step_in_which_its_record_is_acknowledged(
    loop: asyncio.AbstractEventLoop, cluster: Cluster
) -> None:
    """The loop relies on it that an exit of the task that it runs leaves the run by itself (bpo-22429)."""
    producer = Producer(bootstrap_servers=cluster.bootstrap)

    async def main() -> None:
        await producer.start()
        await producer.send_and_wait("t", b"", partition=0)
        raise SystemExit(3)

    with pytest.raises(SystemExit) as left:
        loop.run_until_complete(main())
    assert left.value.code == 3
    loop.run_until_complete(producer.stop())
    _end_tasks(loop)


# Consumers


class Consumes(Raising, Observer, ConsumerInterceptor, RebalanceListener):
    """All hooks of a consumer that run in its background."""

    def rebalance(self, *arguments: object) -> None:
        self._come_to("observer")

    def on_commit(self, *arguments: object) -> None:
        self._come_to("interceptor")

    async def on_partitions_assigned(self, partitions: object) -> None:
        self._come_to("listener")
        await asyncio.sleep(0)
        self._come_to("listener, later")

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        self._come_to("resolve()")
        return [("127.0.0.1", port)]


async def _reads(consumer: Consumer, code: Consumes) -> None:
    await consumer.start()
    if not code.where.startswith("listener"):  # else this would raise its error
        await consumer.wait_assigned()
    while not (code.raised and code.goes_on):
        consumer.commit_soon({TopicPartition("t", 0): 0})
        await asyncio.sleep(0.001)


async def _reads_on(consumer: Consumer, code: Consumes) -> None:
    async with asyncio.timeout(30):
        if code.where.startswith("listener"):
            with pytest.raises(UsageError, match=code.error.__name__) as told:
                await consumer.getone()
            assert isinstance(told.value.__cause__, code.error)
        assert (await consumer.getone()).value == b"0"
        await consumer.commit()
        await consumer.stop()


@pytest.mark.parametrize("where", ["observer", "interceptor", "listener", "listener, later", "resolve()"])
@pytest.mark.parametrize("error", [SystemExit, Foreign])
def test_what_code_at_a_consumer_raises_leaves_it_in_its_group(
    loop: asyncio.AbstractEventLoop, cluster: Cluster, where: str, error: type[BaseException]
) -> None:
    """So it can leave the group, and commit before that, when a service that exits stops it."""
    cluster.append("t", b"0", b"1")
    code = Consumes(where, error)
    consumer = Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap.replace("127.0.0.1", "kafka.example"),
        group_id="g",
        auto_offset_reset="earliest",
        observer=code,
        interceptors=[code],
        listener=code,
        resolve=code.resolve,
    )
    _run(loop, _reads(consumer, code), code)
    loop.run_until_complete(_reads_on(consumer, code))
    assert cluster.members("g") == []
    _end_tasks(loop)


class Assigns(Raising, Assignor):
    """All hooks of an assignor."""

    name = "mine"

    def user_data(self, topics: frozenset[str], last: Claim) -> None:
        self._come_to("user_data()")

    def assign(self, group: Group) -> dict[str, list[TopicPartition]]:
        self._come_to("assign()")
        (member_id,) = group.members
        return {member_id: [TopicPartition(topic, 0) for topic in group.partition_counts]}

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._come_to("on_assignment()")


async def _joins(consumer: Consumer, code: Assigns) -> None:
    await consumer.start()
    if code.error in EXITS:
        await code.over.wait()
    async with asyncio.timeout(30):
        with pytest.raises(AssignmentFailed, match=code.error.__name__) as told:
            await consumer.getone()
        assert isinstance(_first_cause(told.value), code.error)
        if code.where == "on_assignment()":
            assert (await consumer.getone()).value == b"0"
            await consumer.commit()
        await consumer.stop()


def _first_cause(error: BaseException) -> BaseException:
    return error if error.__cause__ is None else _first_cause(error.__cause__)


@pytest.mark.parametrize(
    ("where", "topic"),
    [("user_data()", "t"), ("assign()", "t"), ("assign()", "large"), ("on_assignment()", "t")],
    ids=str,
)
@pytest.mark.parametrize("error", [*EXITS, Foreign])
def test_what_an_assignor_raises_fails_its_group_and_not_the_client(
    loop: asyncio.AbstractEventLoop, cluster: Cluster, where: str, topic: str, error: type[BaseException]
) -> None:
    """In the loop, and in the thread that assigns large groups. stop() still leaves the group."""
    cluster.create_topic("large", 200)
    cluster.append(topic, b"0")
    code = Assigns(where, error)
    consumer = Consumer(
        topic,
        bootstrap_servers=cluster.bootstrap,
        group_id="g",
        auto_offset_reset="earliest",
        partition_assignment_strategy=[code],
    )
    _run(loop, _joins(consumer, code), code)
    assert cluster.members("g") == []
    _end_tasks(loop)


# Providers


class Provides(Raising):
    """A provider of credentials or tokens, by plain functions or async ones."""

    def credentials(self) -> tuple[str, str]:
        self._come_to("provider")
        return "alice", "hush"

    async def credentials_later(self) -> tuple[str, str]:
        return self.credentials()

    def token(self) -> str:
        self._come_to("provider")
        return unsecured_token("alice")

    async def token_later(self) -> str:
        return self.token()


def _provided(code: Provides, mechanism: str, *, later: bool) -> dict[str, Any]:
    if mechanism == "PLAIN":
        return {"sasl_credentials_provider": code.credentials_later if later else code.credentials}
    return {"sasl_oauth_token_provider": SimpleNamespace(token=code.token_later if later else code.token)}


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
@pytest.mark.parametrize("later", [False, True], ids=["plain", "async"])
@pytest.mark.parametrize("error", EXITS)
def test_an_exit_of_a_provider_leaves_the_loop_and_the_next_login_asks_again(
    loop: asyncio.AbstractEventLoop, mechanism: str, later: bool, error: type[BaseException]
) -> None:
    """Of a plain one, too, which runs in a thread."""
    code = Provides("provider", error)
    with Cluster(brokers=1, sasl={"alice": "hush"}, mechanisms=[mechanism]).in_thread() as cluster:
        client = Client(
            bootstrap_servers=cluster.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            allow_plaintext_credentials=True,
            sasl_mechanism=mechanism,
            **_provided(code, mechanism, later=later),
        )
        _run(loop, client.start(), code)
        loop.run_until_complete(client.stop())
    _end_tasks(loop)


# Within a call


class Calls(Raising, ConsumerInterceptor):
    """What of the application runs within its own calls."""

    def deserialize(self, value: bytes) -> bytes:
        if value == b"1":
            self._come_to("deserializer")
        return value

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        self._come_to("interceptor")
        return records

    def on_done(self, *arguments: object) -> None:
        self._come_to("callback")


@pytest.mark.parametrize("where", ["deserializer", "callback", "interceptor"])
@pytest.mark.parametrize("error", [SystemExit, Foreign])
def test_what_code_within_a_call_raises_loses_no_record(
    loop: asyncio.AbstractEventLoop, cluster: Cluster, where: str, error: type[BaseException]
) -> None:
    """The call raises it; but an interceptor has been given records that count as handed out, so they are returned."""
    cluster.append("t", b"0", b"1", b"2")
    code = Calls(where, error)
    got: list[bytes | None] = []

    async def main() -> None:
        consumer = Consumer(
            bootstrap_servers=cluster.bootstrap,
            group_id="g",
            auto_offset_reset="earliest",
            interceptors=[code],
            value_deserializer=code.deserialize,
        )
        async with asyncio.timeout(30), consumer:
            consumer.assign([TopicPartition("t", 0)])
            consumer.commit_soon({TopicPartition("t", 0): 0}, code.on_done)
            while len(got) < 3:
                try:
                    batch = await consumer.getmany(timeout_ms=10)
                except BaseException as raised:
                    assert isinstance(raised, error), raised  # noqa: PT017 - an exit would end pytest, too
                    assert where != "interceptor"
                else:
                    got.extend(record.value for records in batch.values() for record in records)

    task = loop.create_task(main())
    if where == "interceptor" and error in EXITS:
        with pytest.raises(error):
            loop.run_until_complete(task)
    loop.run_until_complete(task)
    assert code.raised == 1
    assert got == [b"0", b"1", b"2"]
    _end_tasks(loop)


def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
