"""One context for clients with equal options, as long as the files are the same; another one for any difference."""

from __future__ import annotations

import gc
import os
import ssl
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import pytest

from aiokc.config import SecurityConfig
from aiokc.errors import ConfigError
from aiokc.net.tls import contexts as module
from aiokc.net.tls import sharing
from aiokc.net.tls.building import Built, build
from aiokc.net.tls.contexts import TlsContexts

from . import certificates as made

Make = Callable[..., TlsContexts]


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> WeakValueDictionary[Hashable, Built]:
    """What clients of this test have built: those of other tests have nothing to share."""
    found = WeakValueDictionary[Hashable, Built]()
    monkeypatch.setattr(sharing, "_BUILT", found)
    return found


@pytest.fixture
def make(tmp_path: Path) -> Make:
    made.written(tmp_path / "ca.pem", made.trust_pem(made.authority()))
    made.written(tmp_path / "client.pem", made.identity_pem(made.client()))

    def make_one(**options: Any) -> TlsContexts:
        options.setdefault("ssl_truststore_location", tmp_path / "ca.pem")
        return TlsContexts(SecurityConfig(security_protocol="SSL", **options))

    return make_one


@pytest.mark.parametrize("store", ["file", "text", "system"])
def test_a_hundred_clients_with_equal_options_build_one(
    make: Make, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    builds: list[SecurityConfig] = []

    def counted(config: SecurityConfig) -> Built:
        builds.append(config)
        return build(config)

    monkeypatch.setattr(module, "build", counted)
    text = made.trust_pem(made.authority()).decode()
    options: dict[str, Any] = {
        "file": {},
        "text": {"ssl_truststore_location": None, "ssl_truststore_certificates": text},
        "system": {"ssl_truststore_location": None, "ssl_enabled_protocols": "TLSv1.3"},
    }[store]
    clients = [make(**options) for _ in range(100)]
    assert len({id(client.current()) for client in clients}) == 1
    assert len(builds) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"ssl_enabled_protocols": "TLSv1.3"},
        {"ssl_endpoint_identification_algorithm": ""},
        {"ssl_keystore_location": "client.pem"},
        {"ssl_truststore_location": "copy.pem"},
    ],
    ids=str,
)
def test_another_option_is_another_context(make: Make, tmp_path: Path, other: dict[str, str]) -> None:
    made.written(tmp_path / "copy.pem", made.trust_pem(made.authority()))
    given = {name: tmp_path / value if value.endswith(".pem") else value for name, value in other.items()}
    one, another = make(), make(**given)
    assert one.current() is not another.current()
    assert make().current() is one.current()


def test_a_path_is_one_in_each_of_its_types(make: Make, tmp_path: Path) -> None:
    as_path, as_text = make(), make(ssl_truststore_location=os.fspath(tmp_path / "ca.pem"))
    assert as_path.current() is as_text.current()


def test_a_store_of_the_system_that_is_in_no_file_is_read_by_each_client(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows: nothing would show that it has changed."""
    nowhere = ssl.get_default_verify_paths()._replace(cafile="", capath="")  # None on Windows, which its type denies
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    one, two = make(ssl_truststore_location=None), make(ssl_truststore_location=None)
    assert one.current() is not two.current()


def test_a_client_that_comes_after_the_files_have_changed_reads_them(make: Make, tmp_path: Path) -> None:
    """Also if others, which have looked less than a second before, go on with what was in them."""
    one = make()
    before = one.current()
    made.written(tmp_path / "ca.pem", made.trust_pem(made.authority(), made.stranger()))
    later = make()
    assert one.current() is before
    assert later.current() is not before
    assert len(later.current().get_ca_certs()) == 2
    (tmp_path / "ca.pem").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"ca\.pem"):
        make().current()


def test_another_store_of_the_system_or_log_of_keys_is_another_context(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(ssl_truststore_location=None)
    one.current()
    monkeypatch.setenv("SSL_CERT_FILE", os.fspath(tmp_path / "ca.pem"))
    two = make(ssl_truststore_location=None)
    assert two.current() is not one.current()
    made.written(tmp_path / "ca.pem", made.trust_pem(made.authority(), made.stranger()))
    three = make(ssl_truststore_location=None)
    assert three.current() is not two.current()
    monkeypatch.setenv("SSLKEYLOGFILE", os.fspath(tmp_path / "keys"))
    four = make(ssl_truststore_location=None)
    assert four.current() is not three.current()
    assert three.current().keylog_filename is None


def test_a_context_lives_no_longer_than_its_clients(make: Make, built: WeakValueDictionary[Hashable, Built]) -> None:
    client = make()
    client.current()
    assert len(built) == 1
    del client
    gc.collect()
    assert len(built) == 0
