"""A client's TLS context: built once, in a thread, and anew when files change; bad files leave the old one in place."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError, ConnectionFailed
from aiokc.net.tls import contexts as module
from aiokc.net.tls import sharing
from aiokc.net.tls.building import Built, build
from aiokc.net.tls.contexts import TlsContexts
from aiokc.net.tls.rotation import fingerprint

from . import certificates as made
from .peers.listening import listening, tls
from .peers.reaching import Reach

SECONDS = 10.0


class Clock:
    """A clock that stands still until the test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Builds:
    """Notes in which threads contexts are built; ``hold`` makes them wait."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.begun = threading.Event()
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def __call__(self, config: SecurityConfig) -> Built:
        self.threads.append(threading.current_thread())
        self.begun.set()
        assert self.may_go_on.wait(SECONDS)
        return build(config)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builds]:
    found = Builds()
    monkeypatch.setattr(module, "build", found)
    monkeypatch.setattr(sharing, "_BUILT", WeakValueDictionary())  # no other test's client has a context to share
    yield found
    found.may_go_on.set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make(tmp_path: Path, clock: Clock) -> Iterator[Callable[..., TlsContexts]]:
    """Make contexts from tmp_path's ca.pem, client.pem (key and certificate), with a clock that stands still."""
    made.written(tmp_path / "ca.pem", made.trust_pem(made.authority()))
    made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
    all_of_them: list[TlsContexts] = []

    def make_one(**options: Any) -> TlsContexts:
        files = {"ssl_truststore_location": tmp_path / "ca.pem", "ssl_keystore_location": tmp_path / "client.pem"}
        found = TlsContexts(SecurityConfig(security_protocol="SSL", **(files | options)), clock=clock)
        all_of_them.append(found)
        return found

    yield make_one
    for one in all_of_them:
        one.close()


Make = Callable[..., TlsContexts]


async def test_it_is_built_once_and_never_in_the_loop(make: Make, builds: Builds) -> None:
    """The system's store alone takes 30 ms."""
    contexts = make()
    assert builds.threads == []
    first = await asyncio.gather(*(contexts.get() for _ in range(5)))
    assert len(set(map(id, first))) == 1
    (thread,) = builds.threads
    assert thread is not threading.main_thread()
    assert (thread.name, thread.daemon) == ("aiokc tls", True)
    assert contexts.current() is first[0]


async def test_the_loop_runs_on_while_it_is_built(make: Make, builds: Builds) -> None:
    builds.may_go_on.clear()
    contexts = make(ssl_truststore_location=None)
    waiting = asyncio.create_task(contexts.get())
    for _ in range(1000):
        await asyncio.sleep(0)
    assert not waiting.done()
    builds.may_go_on.set()
    assert isinstance(await waiting, ssl.SSLContext)


async def test_a_first_one_that_can_not_be_built_is_an_error_each_time(make: Make, tmp_path: Path) -> None:
    contexts = make(ssl_truststore_location=tmp_path / "none.pem")
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"none\.pem': No such file"):
            await contexts.get()
        with pytest.raises(ConfigError, match=r"none\.pem': No such file"):
            contexts.current()
    made.written(tmp_path / "none.pem", made.trust_pem(made.authority()))
    assert await contexts.get() is contexts.current()


async def test_files_are_looked_at_once_a_second(make: Make, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def look(paths: Any) -> Any:
        looks.append(clock.now)
        return fingerprint(paths)

    contexts = make()
    monkeypatch.setattr(module, "fingerprint", look)
    await contexts.get()
    for _ in range(20):
        clock.now += 0.25
        await contexts.get()
        contexts.current()
    assert looks == [1000.0, 1000.25, 1001.25, 1002.25, 1003.25, 1004.25]


async def test_what_is_in_no_file_is_built_once_only(make: Make, clock: Clock, builds: Builds) -> None:
    text = made.trust_pem(made.authority()).decode()
    for options in ({"ssl_truststore_certificates": text}, {}):
        contexts = make(**({"ssl_truststore_location": None, "ssl_keystore_location": None} | options))
        first = await contexts.get()
        clock.now += 3600
        assert await contexts.get() is contexts.current() is first
    assert len(builds.threads) == 2


async def test_the_context_of_the_application_is_used_as_it_is(builds: Builds, clock: Clock) -> None:
    own = ssl.create_default_context()
    contexts = TlsContexts(SecurityConfig(security_protocol="SSL", ssl_context=own), clock=clock)
    clock.now += 3600
    assert await contexts.get() is contexts.current() is own
    assert builds.threads == []


# Rotation


@pytest.fixture(params=["loop", "thread"])
def newest(request: pytest.FixtureRequest) -> Callable[[TlsContexts], Any]:
    """Return the newest context in both ways: ``get`` on the loop, ``current`` in a thread without one."""
    if request.param == "loop":
        return lambda contexts: contexts.get()
    return lambda contexts: asyncio.to_thread(contexts.current)


Newest = Callable[[TlsContexts], Any]


async def test_new_files_make_a_new_context(
    make: Make, newest: Newest, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aiokc")
    contexts = make()
    first = await newest(contexts)
    clock.now += 2
    assert await newest(contexts) is first
    for name, data in (
        ("ca.pem", made.trust_pem(made.authority(), made.stranger())),
        ("client.pem", made.identity_pem(made.authority().issue_cert("new@aiokc.example"))),
    ):
        made.written(tmp_path / name, data)
        assert await newest(contexts) is first  # not a second has passed
        clock.now += 1
        second = await newest(contexts)
        assert second is not first
        first = second
    assert len(first.get_ca_certs()) == 2
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]


@pytest.mark.parametrize(
    "bad",
    [
        lambda: made.key_pem(made.client()) + made.chain_pem(made.server("localhost")),
        lambda: made.identity_pem(made.client())[:-100],
        lambda: made.key_pem(made.client()),
        lambda: b"",
        None,
    ],
    ids=["mismatch", "half written", "no certificate", "empty", "gone"],
)
async def test_bad_files_leave_the_old_context_in_place(
    make: Make,
    newest: Newest,
    clock: Clock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    bad: Callable[[], bytes] | None,
) -> None:
    contexts, file = make(), tmp_path / "client.pem"
    first = await newest(contexts)
    if bad is None:
        file.unlink()
    else:
        made.written(file, bad())
    for _ in range(5):
        clock.now += 2
        assert await newest(contexts) is first
    (record,) = caplog.records  # logged once, not each second
    assert record.levelname == "WARNING"
    assert f"ssl_keystore_location='{file}'" in record.getMessage()
    assert record.getMessage().endswith("new connections go on with what was read before")
    made.written(file, made.identity_pem(made.client()))
    clock.now += 2
    assert await newest(contexts) is not first
    assert len(caplog.records) == 1


async def test_a_pair_of_files_is_replaced_one_after_the_other(
    make: Make, newest: Newest, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = made.authority().issue_cert("new@aiokc.example")
    key = made.written(tmp_path / "client.key", made.key_pem(made.client()))
    chain = made.written(tmp_path / "client.crt", made.chain_pem(made.client()))
    contexts = make(ssl_keystore_location=None, ssl_keystore_key=key, ssl_keystore_certificate_chain=chain)
    first = await newest(contexts)
    made.written(chain, made.chain_pem(new))
    clock.now += 2
    assert await newest(contexts) is first
    made.written(key, made.key_pem(new))
    clock.now += 2
    assert await newest(contexts) is not first
    assert ["do not belong together" in record.getMessage() for record in caplog.records] == [True]


async def test_a_folder_and_links_into_another_one(make: Make, newest: Newest, clock: Clock, tmp_path: Path) -> None:
    """Kubernetes replaces the link ..data, which all others go through."""
    mounted = tmp_path / "mounted"
    for name, data in (("..1", made.trust_pem(made.authority())), ("..2", made.trust_pem(made.stranger()))):
        (mounted / name).mkdir(parents=True)
        made.written(mounted / name / "ca.crt", data)
    (mounted / "..data").symlink_to("..1")
    (mounted / "ca.crt").symlink_to("..data/ca.crt")
    for location in (mounted, mounted / "ca.crt"):
        contexts = make(ssl_truststore_location=location, ssl_keystore_location=None)
        first = await newest(contexts)
        (mounted / "..new").symlink_to("..2" if os.readlink(mounted / "..data") == "..1" else "..1")
        os.replace(mounted / "..new", mounted / "..data")
        clock.now += 2
        second = await newest(contexts)
        assert second.get_ca_certs() != first.get_ca_certs()
    made.written(mounted / "another.pem", made.trust_pem(made.authority(), made.stranger()))
    contexts = make(ssl_truststore_location=mounted, ssl_keystore_location=None)
    assert len((await newest(contexts)).get_ca_certs()) == 2
    (mounted / "another.pem").unlink()
    clock.now += 2
    assert len((await newest(contexts)).get_ca_certs()) == 1


async def test_a_path_that_can_no_more_be_followed_leaves_the_old_context_in_place(
    make: Make, newest: Newest, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a mount goes stale, or a folder above loses its permissions."""
    contexts = make()
    before = await contexts.get()
    stat = os.stat

    def stale(path: Any, **given: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path)):
            raise OSError(errno.ESTALE, "Stale file handle")
        return stat(path, **given)

    clock.now += 2
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stale)
        found = newest(contexts)
        assert (await found if asyncio.iscoroutine(found) else found) is before


async def test_a_file_that_changes_while_it_is_read_is_seen_the_next_time(
    make: Make, clock: Clock, tmp_path: Path, builds: Builds
) -> None:
    contexts = make()
    builds.may_go_on.clear()
    reading = asyncio.create_task(contexts.get())
    assert await asyncio.to_thread(builds.begun.wait, SECONDS)
    made.written(tmp_path / "ca.pem", made.trust_pem(made.stranger()))
    builds.may_go_on.set()
    await reading
    clock.now += 2
    await contexts.get()
    assert len(builds.threads) == 2


async def test_files_that_do_not_answer_hold_up_no_caller_once_there_is_a_context(
    make: Make,
    clock: Clock,
    tmp_path: Path,
    builds: Builds,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A network file system can hang for hours."""
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.01)
    contexts = make()
    first = await contexts.get()
    made.written(tmp_path / "ca.pem", made.trust_pem(made.stranger()))
    builds.may_go_on.clear()
    for _ in range(5):
        clock.now += 2
        assert await contexts.get() is first
        assert contexts.current() is first
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "were not read within 0.01 s" in caplog.text
    builds.may_go_on.set()
    second = first
    while second is first:
        clock.now += 2
        await asyncio.sleep(0.001)
        second = await contexts.get()
    assert second.get_ca_certs() != first.get_ca_certs()


async def test_files_that_never_answer_are_no_wait_without_an_end(
    make: Make, builds: Builds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_FIRST_SECONDS", 0.01)
    contexts = make()
    builds.may_go_on.clear()
    with pytest.raises(ConnectionFailed, match=r"not read within 0\.01 s: does their file system answer\?"):
        await contexts.get()
    builds.may_go_on.set()
    monkeypatch.undo()
    assert isinstance(await contexts.get(), ssl.SSLContext)


async def test_a_cancelled_caller_leaves_the_context_to_the_next_one(make: Make, builds: Builds) -> None:
    contexts = make()
    builds.may_go_on.clear()
    first = asyncio.create_task(contexts.get())
    assert await asyncio.to_thread(builds.begun.wait, SECONDS)
    first.cancel()
    await asyncio.wait((first,))
    builds.may_go_on.set()
    assert await contexts.get() is contexts.current()
    assert len(builds.threads) == 1


async def test_living_connections_stay_when_files_change(make: Make, clock: Clock, tmp_path: Path) -> None:
    """Java's clients and librdkafka never read their files again; a changed context could break living connections."""
    contexts = make()
    server = made.wanting_clients(made.of_server(made.server("localhost")))
    with listening(tls(server)) as peer:
        old = await asyncio.open_connection(peer.host, peer.port, ssl=await contexts.get(), server_hostname="localhost")
        made.written(tmp_path / "ca.pem", made.trust_pem(made.stranger()))
        clock.now += 2
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection(peer.host, peer.port, ssl=await contexts.get(), server_hostname="localhost")
        old[1].write(b"still here")
        assert await old[0].readexactly(10) == b"still here"
        old[1].close()
        await old[1].wait_closed()


def test_new_connections_show_the_new_certificate(make: Make, clock: Clock, tmp_path: Path, reach: Reach) -> None:
    unknown = made.stranger().issue_cert("client@aiokc.example")
    made.written(tmp_path / "client.pem", made.identity_pem(unknown))
    contexts = make()
    server = made.wanting_clients(made.of_server(made.server("localhost")))
    with listening(tls(server)) as peer:
        with pytest.raises(Exception, match="refused our certificate"):
            reach(contexts, peer.host, peer.port, "localhost", SECONDS)
        made.written(tmp_path / "client.pem", made.identity_pem(made.client()))
        clock.now += 2
        assert reach(contexts, peer.host, peer.port, "localhost", SECONDS) == b"hello"


# Other questions to it


def test_names_are_checked(make: Make) -> None:
    contexts = make()
    assert contexts.server_name("localhost.") == "localhost"
    with pytest.raises(ConnectionFailed):
        contexts.server_name("")


async def test_failures(make: Make) -> None:
    """Errors that have nothing to do with TLS are left to the caller."""
    contexts = make()
    closed = ConnectionResetError()
    assert contexts.failure(closed, "broker 1", "localhost") is None  # without a context no handshake was tried
    await contexts.get()
    found = contexts.failure(closed, "broker 1", "localhost")
    assert isinstance(found, ConnectionFailed)
    assert found.__cause__ is closed
    after = contexts.failure(closed, "broker 1", "localhost", established=True)
    assert isinstance(after, ConnectionFailed)
    assert "closed right after the TLS handshake: with TLS 1.3 a broker may refuse" in str(after)
    for error in (ConnectionRefusedError(), OSError(), ValueError()):
        assert contexts.failure(error, "broker 1", "localhost") is None
