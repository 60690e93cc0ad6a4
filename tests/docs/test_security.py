"""Each example of docs/security.md makes a client: its options, certificates and credentials fit together."""

from __future__ import annotations

import os
import re
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import aiokc
from aiokc import Consumer
from aiokc.config import ConsumerConfig
from aiokc.net.credentials.credentials import Credentials
from aiokc.net.credentials.tokens.aws_credentials import AwsOptions
from aiokc.net.tls.building import build, given
from aiokc.testing import Certificates

from .examples import ROOT, Example, examples

EXAMPLES = examples("docs/security.md")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the examples expect in /etc/kafka."""
    folder = tmp_path_factory.mktemp("etc-kafka")
    certificates = Certificates()
    mine = certificates.client_pem("billing")
    parts = re.findall(r"-----BEGIN [^-]+-----.*?-----END [^-]+-----\n", mine, re.DOTALL)
    (folder / "ca.pem").write_text(certificates.ca_pem)
    (folder / "billing.pem").write_text(mine)
    (folder / "tls.key").write_text("".join(part for part in parts if "PRIVATE KEY" in part))
    (folder / "tls.crt").write_text("".join(part for part in parts if "PRIVATE KEY" not in part))
    return folder


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_makes_a_client(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = made(example, folder, monkeypatch)
    assert config.uses_tls, "no recipe goes without encryption"
    assert config.security_warnings == []
    built = given(config.ssl_context) if config.ssl_context is not None else build(config)
    assert built.context.verify_mode is ssl.CERT_REQUIRED
    assert built.context.check_hostname
    if config.uses_sasl:
        Credentials(config)  # which reads the URLs


def made(example: Example, folder: Path, monkeypatch: pytest.MonkeyPatch) -> ConsumerConfig:
    """Run an example, and return the config of its consumer, which is not started."""
    for name in re.findall(r"""os\.environ\[["'](\w+)["']\]""", example.code):
        monkeypatch.setenv(name, f"the {name}".replace(" ", "-"))
    names: dict[str, Any] = {
        **{"aiokc": aiokc, "Consumer": Consumer, "os": os, "ssl": ssl, "Path": Path},
        **{"vault": SimpleNamespace(), "identity_service": SimpleNamespace()},
    }
    exec(compile(example.code.replace("/etc/kafka", str(folder)), example.name, "exec"), names)
    consumer = names["consumer"]
    assert isinstance(consumer, Consumer)
    return consumer.config


def test_the_examples_are_those_of_all_mechanisms_but_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SCRAM-SHA-256 has none of its own."""
    found = {made(example, folder, monkeypatch).sasl_mechanism for example in EXAMPLES}
    assert found == {None, "PLAIN", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"}


def test_each_example_has_only_options_that_the_page_explains() -> None:
    page = (ROOT / "docs/security.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    used = {name for example in EXAMPLES for name in re.findall(r"\b((?:ssl|sasl)_\w+)=", example.code)}
    assert used <= rows


def test_the_region_of_msk_is_the_one_in_the_name_of_the_bootstrap_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (config,) = (made(example, folder, monkeypatch) for example in EXAMPLES if '"AWS_MSK_IAM"' in example.code)
    assert AwsOptions.of(config).region == "eu-west-1"
