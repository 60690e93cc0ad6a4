"""Fixtures and options of the whole test suite: brokers that start when first wanted, and the event loops to run on."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import platform
import re
import signal
import sys
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from aiokc.records import NATIVE
from aiokc.testing.kafka import Acl, LocalKafka, LocalKafkaError, SecureKafka, libs
from aiokc.testing.kafka.jars import KAFKA_VERSION, OLD_VERSIONS, home, release
from aiokc.testing.kafka.process import START_SECONDS
from aiokc.testing.kafka.spark_jars import spark_kafka_jars

from .suite import examples, spark_releases, unused_faults
from .suite.hang_guard import HangGuard, insist
from .suite.peers.without_peers import WithoutPeers

ROOT = Path(__file__).parent.parent
IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}

# One download serves every run, from whatever folder pytest is called.
os.environ.setdefault("AIOKC_KAFKA_HOME", str(ROOT / ".kafka"))

# The release of PySpark for the tests that are marked every_spark, put first before any import of the other one.
OLD_SPARK = os.environ.get("AIOKC_SPARK")
if OLD_SPARK is not None:
    spark_releases.put_first(OLD_SPARK)

settings.load_profile(examples.SAMPLE)

_GUARD = pytest.StashKey[HangGuard]()
_TIMER = pytest.StashKey[object]()  # what pytest-timeout was told of a test's limit
_BROKERS = {"kafka", "three_nodes", "secure_kafka"}
_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.SelectorEventLoop}
_UVLOOP = "not there"
if importlib.util.find_spec("uvloop") is not None:  # it has no wheels for the newest Pythons
    import uvloop

    _LOOPS["uvloop"] = uvloop.new_event_loop
    _UVLOOP = uvloop.__version__


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "run every async test on this loop only (default: asyncio; tests marked any_loop on both)"
    parser.addoption("--loop", choices=[*_LOOPS], help=text)
    text = (
        "the release of Kafka to run against; an old one runs the tests marked every_kafka only (default: %(default)s)"
    )
    without = "leave out the tests that need other people's packages (clients, codecs, Spark) which are not installed"
    parser.addoption("--without-peers", action="store_true", help=without)
    parser.addini(
        "limit_again", "seconds after which a test that its time limit has not ended hears of it again", default="20"
    )
    parser.addini("hang_grace", "seconds after its time limit in which a test has to end", default="120")
    parser.addoption("--kafka", choices=[KAFKA_VERSION, *OLD_VERSIONS], default=KAFKA_VERSION, help=text)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    chosen = config.getoption("--loop")
    if chosen is None and item.get_closest_marker("any_loop"):
        return _LOOPS
    name = chosen or "asyncio"
    return {name: _LOOPS[name]}


def pytest_report_header(config: pytest.Config) -> str:
    version = config.getoption("--kafka")
    external = os.environ.get("AIOKC_BOOTSTRAP") if version == KAFKA_VERSION else None
    kafka = external or f"{version} from {home()}"
    loop = config.getoption("--loop") or "asyncio, any_loop tests on uvloop too"
    decoder = "native" if NATIVE else "pure Python"
    return (
        f"aiokc: Python {platform.python_version()}, loop {loop} (uvloop {_UVLOOP}), decoder {decoder}, Kafka {kafka}"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_GUARD] = HangGuard()
    unused_faults.watch()
    if config.getoption("--without-peers"):
        sys.meta_path.append(WithoutPeers())
    # A shell's background job ignores Ctrl-C, and so would all processes that tests start, and then interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if OLD_SPARK is not None:
        config.addinivalue_line("filterwarnings", "ignore::ResourceWarning")  # it leaves its own sockets open


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with item.config.stash[_GUARD].watching(item.nodeid, _patience(item)):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if getattr(item, "execution_count", 1) > 1:  # run again (flaky): with the first failure its limit has ended
        item.config.stash[_GUARD].begins(item.nodeid, _patience(item))
        item.ihook.pytest_timeout_set_timer(item=item, settings=item.stash[_TIMER])
    unused_faults.forget()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    done = yield
    unused_faults.insist_on_use()  # not where the test has failed: then it may not have reached them
    return done


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: object) -> Generator[None, object, object]:
    done = yield
    item.stash[_TIMER] = settings
    insist(float(item.config.getini("limit_again")))
    return done


@pytest.hookimpl(tryfirst=True)  # before -m chooses by the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        _let_parameters_decide_on_time(item)
        _let_no_limit_be_short(item)
        if _BROKERS.intersection(getattr(item, "fixturenames", ())) or _is_at_kafka(item):
            item.add_marker(pytest.mark.kafka)
        if item.get_closest_marker("kafka"):
            _add_the_start_of_brokers(item)
        if "uvloop" in item.name:
            _end_a_hang_on_uvloop(item)
            loops = item.get_closest_marker("any_loop")
            if loops is not None and loops.kwargs.get("uvloop") == "long":
                item.add_marker(pytest.mark.long)
    _leave_out_what_is_too_new(config, items)
    # A broker that has started runs until the end, and takes its share of the machine: what needs one comes last.
    items.sort(key=lambda item: item.get_closest_marker("kafka") is not None)


def _let_parameters_decide_on_time(item: pytest.Item) -> None:
    """A time limit in pytest.param() comes before that of its function; by itself pytest takes the function's."""
    called = getattr(item, "callspec", None)
    for mark in called.marks if called is not None else ():
        if mark.name == "timeout":
            item.add_marker(pytest.mark.timeout(*mark.args, **mark.kwargs), append=False)


def _let_no_limit_be_short(item: pytest.Item) -> None:
    """A limit is there to end what hangs. On a machine that is busy with others, half a minute ends what is slow."""
    mark, least = item.get_closest_marker("timeout"), float(item.config.getini("timeout"))
    if mark is not None and 0 < mark.args[0] < least:
        item.add_marker(pytest.mark.timeout(least, *mark.args[1:], **mark.kwargs), append=False)


def _leave_out_what_is_too_new(config: pytest.Config, items: list[pytest.Item]) -> None:
    kafka: str = config.getoption("--kafka")
    left_out = set[pytest.Item]()
    if kafka != KAFKA_VERSION:
        left_out.update(item for item in items if not _runs_on(kafka, item))
    if OLD_SPARK is not None:
        left_out.update(item for item in items if not spark_releases.runs_on(OLD_SPARK, item))
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _runs_on(old: str, item: pytest.Item) -> bool:
    mark = item.get_closest_marker("every_kafka")
    on_one_broker = {"kafka", "secure_kafka", "either"}.intersection(getattr(item, "fixturenames", ()))
    return bool(
        (on_one_broker or _is_at_kafka(item))
        and mark is not None
        and release(old) >= release(mark.kwargs.get("since", "0.0"))
    )


def _is_at_kafka(item: pytest.Item) -> bool:
    """Return whether the test's fixture `place`, `brokers` (tests/security) or `broker` is a real Kafka."""
    called = getattr(item, "callspec", None)
    return called is not None and "kafka" in map(called.params.get, ("place", "brokers", "broker"))


def _add_the_start_of_brokers(item: pytest.Item) -> None:
    """Brokers start, or start again, in the time of a test, which on a busy machine takes a minute or more."""
    item.add_marker(pytest.mark.timeout(_limit(item) + START_SECONDS), append=False)


def _end_a_hang_on_uvloop(item: pytest.Item) -> None:
    """No exception from a signal handler gets through uvloop: only a thread can end a test that hangs there."""
    item.add_marker(pytest.mark.timeout(_limit(item), method="thread"), append=False)


def _patience(item: pytest.Item) -> float:
    """How many seconds after its begin a test is taken for hung: its time limit has not ended it."""
    return _limit(item) + float(item.config.getini("hang_grace"))


def _limit(item: pytest.Item) -> float:
    limit = item.get_closest_marker("timeout")
    return float(limit.args[0] if limit is not None else item.config.getini("timeout"))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fetch Kafka's jars before the first test, and outside of any test's time limit."""
    if any(item.get_closest_marker("kafka") for item in session.items) and not session.config.option.collectonly:
        try:
            libs(session.config.getoption("--kafka"))
            if any(item.get_closest_marker("spark") for item in session.items):
                spark_kafka_jars()
        except LocalKafkaError as error:
            raise pytest.UsageError(f"{error}; or leave these tests out: -m 'not kafka'") from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a test of a real system that did not run has failed: a missing Java must not look like success."""
    if call.excinfo is not None and hasattr(signal, "setitimer"):  # not on Windows, where no alarm comes
        signal.setitimer(signal.ITIMER_REAL, 0)  # it has ended, and no alarm may come while pytest reports how
    report = yield
    expected = hasattr(report, "wasxfail")
    if IN_CI and report.skipped and not expected and any(map(item.get_closest_marker, ("kafka", "spark"))):
        report.outcome = "failed"
        report.longrepr = f"skipped, where CI=true allows no skip of a kafka or spark test: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IN_CI and report.skipped and not collector.config.getoption("--without-peers"):
        report.outcome = "failed"
        report.longrepr = f"skipped as a whole, where CI=true allows no skip: {report.longrepr}"
    return report


@pytest.fixture(scope="session")
def kafka(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """One broker shared by all tests; use it with `topic_name`, and leave no trace but topics and groups."""
    with LocalKafka(version=request.config.getoption("--kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def secure_kafka(request: pytest.FixtureRequest) -> Iterator[SecureKafka]:
    """One broker with TLS, SASL and ACLs, shared by all tests. User alice may use all topics and groups."""
    with SecureKafka(version=request.config.getoption("--kafka")) as running:
        running.add_acls(Acl("alice", "ALL", "TOPIC", "*"), Acl("alice", "ALL", "GROUP", "*"))
        yield running


@pytest.fixture(scope="session")
def three_nodes_for_all() -> Iterator[LocalKafka]:
    """The listener FAULTY advertises a port one above its own: a proxy may listen there."""
    with LocalKafka(nodes=3, listeners={"FAULTY": "PLAINTEXT"}, advertise=lambda _id, _name, port: port + 1) as running:
        yield running


@pytest.fixture
def three_nodes(three_nodes_for_all: LocalKafka) -> Iterator[LocalKafka]:
    """Three brokers shared by all tests; a test may kill, terminate and pause nodes, they are healed afterwards."""
    yield three_nodes_for_all
    three_nodes_for_all.heal()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, in this run or any other; nothing of that name exists yet."""
    test = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name)[:100].strip("-")
    return f"{test}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def endless_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time slice lasts for ever. Else one may end at any point of a test, where the machine is busy with others."""
    for name in ("aio.time_slice", "produce.callbacks", "produce.sender"):
        monkeypatch.setattr(f"aiokc.client.{name}.SLICE_SECONDS", 1e9)
