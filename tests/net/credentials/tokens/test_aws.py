"""Tokens for Amazon MSK: which credentials sign them, with and without botocore."""

from __future__ import annotations

import shlex
import sys
import time
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from aiokc.config import ClientConfig, SecurityConfig
from aiokc.core.sasl.mechanism import Mechanism
from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.credentials import Credentials
from aiokc.net.credentials.tokens.aws_credentials import AwsAsker, AwsOptions

from .loopback_idp import LoopbackIdp, http, idp

ROLE = "arn:aws:iam::123456789012:role/reader"
ASSUMED = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>AKIDROLE</AccessKeyId><SecretAccessKey>canary-role</SecretAccessKey><SessionToken>canary-session/
</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


XML = "Content-Type: text/xml"
REFUSED = """<ErrorResponse><Error><Code>InvalidClientTokenId</Code><Message>no such key</Message></Error>
</ErrorResponse>"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove this computer's credentials, and the way to those that a machine at Amazon has."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION", "PROFILE"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-env")


@pytest.fixture(params=["with botocore", "without botocore"])
def with_or_without(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without botocore":
        without_botocore(monkeypatch)


def without_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "botocore.session", None)


async def login(**options: Any) -> Mechanism:
    config = SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="AWS_MSK_IAM", **options)
    client = Credentials(config)
    mechanism = await client.login()
    assert mechanism.name == "OAUTHBEARER"
    assert mechanism.expires_at == pytest.approx(time.time() + 900, abs=10)
    assert isinstance(next(mechanism.conversation()), bytes)
    return mechanism


def signed(mechanism: Mechanism) -> tuple[str, dict[str, str]]:
    """Return the host and the query of the URL in the token."""
    return in_url(mechanism.secrets[0].reveal())


def in_url(text: str) -> tuple[str, dict[str, str]]:
    url = urlsplit(urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode())
    return url.netloc, {name: values[0] for name, values in parse_qs(url.query).items()}


@pytest.mark.usefixtures("with_or_without", "keys")
@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
async def test_the_environment(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "eu-west-3")
    mechanism = await login()
    assert mechanism.identity == "AWS credentials"
    host, query = signed(mechanism)
    assert host == "kafka.eu-west-3.amazonaws.com"
    assert query["X-Amz-Credential"].startswith("AKIDENV/")
    assert "X-Amz-Security-Token" not in query
    monkeypatch.setenv("AWS_SESSION_TOKEN", "temporary+/=")
    host, query = signed(await login(sasl_aws_region="us-east-1"))
    assert host == "kafka.us-east-1.amazonaws.com"
    assert query["X-Amz-Security-Token"] == "temporary+/="


async def test_a_profile(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKIDWORK\naws_secret_access_key = canary-work\n")
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n")
    mechanism = await login(sasl_aws_profile="work")
    host, query = signed(mechanism)
    assert host == "kafka.ap-south-1.amazonaws.com"
    assert query["X-Amz-Credential"].startswith("AKIDWORK/")
    assert mechanism.identity == "AWS profile 'work'"


@asynccontextmanager
async def roles(monkeypatch: pytest.MonkeyPatch, *answers: bytes) -> AsyncIterator[LoopbackIdp]:
    """The service that gives out the keys of roles (STS)."""
    async with idp(*answers) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", f"http://127.0.0.1:{sts.port}")
        yield sts


@pytest.mark.usefixtures("keys")
async def test_a_role(monkeypatch: pytest.MonkeyPatch) -> None:
    async with roles(monkeypatch, http(200, ASSUMED, XML)) as sts:
        mechanism = await login(sasl_aws_region="eu-west-3", sasl_aws_role_arn=ROLE)
        assert sts.form()["RoleArn"] == ROLE
        assert sts.form()["RoleSessionName"] == "aiokc"
    _, query = signed(mechanism)
    assert query["X-Amz-Credential"].startswith("AKIDROLE/")
    assert query["X-Amz-Security-Token"].startswith("canary-session")
    assert mechanism.identity == f"AWS role {ROLE!r}"


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize(
    ("server", "region"),
    [
        ("b-1.mycluster.abc123.c2.kafka.eu-west-3.amazonaws.com:9098", "eu-west-3"),
        ("boot-abc123.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-1.x.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("localhost:1,b-1.x.kafka.ap-south-1.amazonaws.com:9098", "ap-south-1"),
        ("kafka.eu-west-3.amazonaws.com.example:9098", "us-west-2"),
        ("tunnel:9098", "us-west-2"),
    ],
)
async def test_the_region_in_the_name_of_a_broker(monkeypatch: pytest.MonkeyPatch, server: str, region: str) -> None:
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    config = ClientConfig(bootstrap_servers=server, sasl_mechanism="AWS_MSK_IAM", security_protocol="SASL_SSL")
    assert signed(await Credentials(config).login())[0] == f"kafka.{region}.amazonaws.com"


async def failure(**options: Any) -> str:
    with pytest.raises(AuthenticationFailed) as raised:
        await login(**options)
    assert raised.value.mechanism == "AWS_MSK_IAM"
    assert raised.value.retriable
    assert str(raised.value).startswith("the token provider (AWS ")
    assert "canary" not in f"{raised.value!r} {raised.value.__cause__!r}"
    return str(raised.value)


@pytest.mark.usefixtures("with_or_without", "keys")
async def test_no_region() -> None:
    assert "no region is known: set sasl_aws_region" in await failure()


async def test_no_credentials() -> None:
    assert "botocore finds no credentials" in await failure(sasl_aws_region="eu-west-3")


async def test_no_credentials_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    without_botocore(monkeypatch)
    found = await failure(sasl_aws_region="eu-west-3")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set" in found
    assert "pip install 'aiokc[aws]'" in found


@pytest.mark.parametrize("option", ["sasl_aws_profile", "sasl_aws_role_arn"])
async def test_what_needs_botocore_says_so(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    without_botocore(monkeypatch)
    assert f"{option} needs the package botocore: pip install 'aiokc[aws]'" in await failure(**{option: ROLE})


async def test_an_unknown_profile() -> None:
    assert "raised ProfileNotFound" in await failure(sasl_aws_profile="nobody", sasl_aws_region="eu-west-3")


@pytest.mark.usefixtures("keys")
async def test_a_region_that_is_none() -> None:
    with pytest.raises(AuthenticationFailed, match="no region of AWS"):
        await login(sasl_aws_region="evil.example/#")


@pytest.mark.usefixtures("keys")
async def test_keys_that_rotate_are_the_same_principal(monkeypatch: pytest.MonkeyPatch) -> None:
    first = await login(sasl_aws_region="eu-west-3")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDNEXT")
    second = await login(sasl_aws_region="eu-west-3")
    assert signed(first)[1]["X-Amz-Credential"] != signed(second)[1]["X-Amz-Credential"]
    assert Credentials.is_same_principal(first, second)


@asynccontextmanager
async def asker(*, role_arn: str | None = None, profile: str | None = None) -> AsyncIterator[AwsAsker]:
    found = AwsAsker(AwsOptions("eu-west-3", profile, role_arn), time.time)
    try:
        yield found
    finally:
        found.close()


async def key(asked: AwsAsker) -> str:
    """Return the id of the key that signed the next token."""
    _, query = in_url((await asked.ask()).value.reveal())
    return query["X-Amz-Credential"].partition("/")[0]


class Keys:
    """The keys of the environment, or of a file."""

    def __init__(self, place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self._place, self._monkeypatch, self._tmp_path = place, monkeypatch, tmp_path

    def become(self, name: str, profile: str = "default") -> None:
        if self._place == "environment":
            self._monkeypatch.setenv("AWS_ACCESS_KEY_ID", name)
            self._monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
        else:
            lines = f"[{profile}]", f"aws_access_key_id = {name}", "aws_secret_access_key = canary", ""
            (self._tmp_path / self._place).write_text("\n".join(lines))


@pytest.mark.parametrize("place", ["credentials", "config", "environment"])
async def test_keys_that_were_replaced_sign_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    keys = Keys(place, monkeypatch, tmp_path)
    async with asker() as asked:
        for name in ("AKIDFIRST", "AKIDNEXT"):
            keys.become(name)
            assert await key(asked) == name


@pytest.mark.parametrize("place", ["credentials", "environment"])
async def test_a_role_is_assumed_with_the_keys_that_are_there_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    keys = Keys(place, monkeypatch, tmp_path)
    async with roles(monkeypatch, http(200, ASSUMED, XML)) as sts, asker(role_arn=ROLE) as asked:
        for name in ("AKIDFIRST", "AKIDNEXT"):
            keys.become(name)
            assert await key(asked) == "AKIDROLE"
            assert f"Credential={name}/" in sts.asked[-1][1]["authorization"]


async def test_credentials_that_botocore_renews_are_asked_for_when_they_end(tmp_path: Path) -> None:
    calls, answer = tmp_path / "calls", tmp_path / "answer"
    answer.write_text(
        '{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "canary", "Expiration": "2099-01-01T00:00Z"}'
    )
    program = tmp_path / "program"
    program.write_text(f"echo called >> {shlex.quote(str(calls))}; cat {shlex.quote(str(answer))}")
    (tmp_path / "config").write_text(f"[default]\ncredential_process = sh {shlex.quote(str(program))}\n")
    async with asker() as asked:
        assert [await key(asked) for _ in range(3)] == ["AKIDPROCESS"] * 3
    assert calls.read_text() == "called\n"


async def test_keys_of_a_profile_s_role_are_read_again_when_they_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """botocore renews the role's credentials itself, with the keys that it read at first."""
    (tmp_path / "config").write_text(f"[profile work]\nrole_arn = {ROLE}\nsource_profile = base\nregion = eu-west-3\n")
    keys = Keys("credentials", monkeypatch, tmp_path)
    soon = (datetime.now(UTC) + timedelta(minutes=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ending = http(200, ASSUMED.replace("2099-01-01T00:00:00Z", soon), XML)
    async with roles(monkeypatch, ending, http(403, REFUSED, XML), ending) as sts, asker(profile="work") as asked:
        keys.become("AKIDFIRST", "base")
        assert await key(asked) == "AKIDROLE"
        keys.become("AKIDNEXT", "base")
        with pytest.raises(AuthenticationFailed, match="InvalidClientTokenId"):
            await key(asked)
        assert await key(asked) == "AKIDROLE"
        assert "Credential=AKIDNEXT/" in sts.asked[-1][1]["authorization"]
