"""What shows that files have changed; and files that can't be read for a moment, which leaves nothing to see."""

from __future__ import annotations

import errno
import os
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from weakref import WeakValueDictionary

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError
from aiokc.net.tls import building, rotation, sharing, stores
from aiokc.net.tls.building import build
from aiokc.net.tls.contexts import TlsContexts
from aiokc.net.tls.rotation import fingerprint

from . import certificates as made

pytestmark = pytest.mark.timeout(30)


class Looking:
    """A client's contexts, from a folder with ca.pem and client.pem (key and certificate), and how to look again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 1000.0
        made.written(folder / "ca.pem", made.trust_pem(made.authority()))
        made.written(folder / "client.pem", made.identity_pem(made.client()))
        files: dict[str, Any] = {"ssl_truststore_location": folder, "ssl_keystore_location": folder / "client.pem"}
        config = SecurityConfig(security_protocol="SSL", **files)
        self.contexts = TlsContexts(config, clock=lambda: self.now)

    def again(self) -> ssl.SSLContext:
        """Return the context after another look at the files."""
        self.now += 1
        return self.contexts.current()

    def renew(self, name: str) -> None:
        made.written(self.folder / "client.pem", made.identity_pem(made.authority().issue_cert(name)))


@pytest.fixture
def looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Looking]:
    monkeypatch.setattr(sharing, "_BUILT", WeakValueDictionary())  # no other test's client has a context to share
    found = Looking(tmp_path)
    yield found
    found.contexts.close()


class Failing:
    """Stands in for a function of the system that works ``first`` times, and then fails ``times`` times."""

    def __init__(self, call: Callable[..., Any], error: int) -> None:
        self.first, self.times, self.error = 0, 0, error
        self._call = call

    def __call__(self, *given: Any) -> Any:
        if self.first or not self.times:
            self.first = max(0, self.first - 1)
            return self._call(*given)
        self.times -= 1
        raise OSError(self.error, os.strerror(self.error))


# What shows


@pytest.mark.parametrize("what", ["st_mtime_ns", "st_ctime_ns", "st_size", "st_ino"])
def test_a_files_times_its_length_and_its_inode_tell_each_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """A new file may have the old one's inode and length, and the time that an archive gives it; but not its ctime."""
    file = made.written(tmp_path / "a", b"old")
    before, about = fingerprint([file]), os.stat(file)
    fields = {name: getattr(about, name) for name in ("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")}
    monkeypatch.setattr(rotation, "os", SimpleNamespace(path=os.path, stat=lambda path: SimpleNamespace(**fields)))
    assert fingerprint([file]) == before
    fields[what] += 1
    assert fingerprint([file]) != before


def test_a_file_that_is_gone_and_a_path_that_no_file_has_tell_too(tmp_path: Path) -> None:
    file = made.written(tmp_path / "a", b"old")
    seen = {fingerprint([file])}
    file.unlink()
    seen |= {fingerprint([file]), fingerprint([tmp_path / "\0"])}
    assert len(seen) == 3


def test_a_path_that_cannot_be_followed_is_an_error(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert fingerprint([loop]) == ((str(loop), (errno.ELOOP,)),)
    with pytest.raises(ConfigError, match=r"ssl_truststore_location=.*: Too many levels of symbolic links"):
        build(SecurityConfig(security_protocol="SSL", ssl_truststore_location=loop))


# What does not show


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ESTALE], ids=os.strerror)
def test_a_file_that_could_not_be_read_is_read_at_the_next_look(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: int
) -> None:
    """Too many files were open, or its owner changed right after it was written."""
    opening = Failing(open, error)
    monkeypatch.setattr(stores, "open", opening, raising=False)
    before = looking.again()
    for name in ("new@aiokc.example", "newer@aiokc.example"):
        caplog.clear()
        looking.renew(name)
        opening.times = 3
        assert [looking.again() for _ in range(3)] == [before] * 3
        after = looking.again()
        assert after is not before
        before = after
        (record,) = caplog.records  # one for each new file, and not one each second
        assert record.levelname == "WARNING"
        assert os.strerror(error) in record.getMessage()


def test_each_failure_is_told_once(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opening = Failing(open, errno.EACCES)
    monkeypatch.setattr(stores, "open", opening, raising=False)
    looking.again()
    looking.renew("new@aiokc.example")
    for error in (errno.EACCES, errno.EMFILE, errno.EACCES, errno.EMFILE):
        opening.error, opening.times = error, 1
        looking.again()
    assert [os.strerror(errno.EMFILE) in record.getMessage() for record in caplog.records] == [False, True]


@pytest.mark.parametrize("is_seen", [True, False], ids=["to see what changed", "to read it"])
def test_a_folder_that_could_not_be_listed_is_read_at_the_next_look(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, is_seen: bool
) -> None:
    scanning = Failing(os.scandir, errno.EMFILE)
    before = looking.again()
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", scanning)
        made.written(looking.folder / "another.pem", made.trust_pem(made.stranger()))
        scanning.first, scanning.times = (0, 2) if is_seen else (1, 1)
        assert looking.again() is before
        assert scanning.times == 0
    assert len(looking.again().get_ca_certs()) == len(before.get_ca_certs()) + 1


@pytest.mark.parametrize("step", ["key_file", "_trusting"])
def test_no_room_for_what_openssl_writes_is_no_fault_of_the_files(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """It gets the key in a file, and writes one of its own for SSLKEYLOGFILE."""
    writing = Failing(getattr(building, step), errno.ENOSPC)
    monkeypatch.setattr(building, step, writing)
    before = looking.again()
    looking.renew("new@aiokc.example")
    writing.times = 1
    assert looking.again() is before
    assert writing.times == 0
    assert looking.again() is not before


def test_a_file_whose_content_is_wrong_is_not_read_each_second(
    looking: Looking, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """To open a store takes some milliseconds, and it stays wrong."""
    before = looking.again()
    made.written(looking.folder / "client.pem", made.identity_pem(made.client())[:-100])
    assert looking.again() is before
    opening = Failing(open, errno.EIO)
    opening.times = 1
    monkeypatch.setattr(stores, "open", opening, raising=False)
    assert [looking.again() for _ in range(5)] == [before] * 5
    assert opening.times == 1
    assert len(caplog.records) == 1
