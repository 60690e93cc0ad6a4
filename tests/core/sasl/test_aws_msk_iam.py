"""The token for Amazon MSK, against botocore's own signatures."""

from __future__ import annotations

import importlib
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.sasl.aws_msk_iam import LIFETIME, AwsCredentials, msk_token, presigned_url
from aiokc.core.sasl.oauthbearer import OAuthBearer
from aiokc.errors import AuthenticationFailed
from aiokc.secret import Secret

from .scripted_broker import ScriptedBroker

NOW = 1_700_000_000.5
EXAMPLE = AwsCredentials("AKIDEXAMPLE", Secret("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"))


def by_botocore(credentials: AwsCredentials, region: str, now: float) -> str:
    auth = pytest.importorskip("botocore.auth")
    requests, kinds = importlib.import_module("botocore.awsrequest"), importlib.import_module("botocore.credentials")
    token = credentials.session_token
    theirs = kinds.Credentials(
        credentials.access_key, credentials.secret_key.reveal(), token.reveal() if token is not None else None
    )
    request = requests.AWSRequest(
        "GET", f"https://kafka.{region}.amazonaws.com/", params={"Action": "kafka-cluster:Connect"}
    )
    moment = datetime.fromtimestamp(now, UTC)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auth, "get_current_datetime", lambda *given, **named: moment)
        auth.SigV4QueryAuth(theirs, "kafka-cluster", region, expires=LIFETIME).add_auth(request)
    url: str = request.url
    return url


def parts(url: str) -> tuple[str, str, dict[str, list[str]]]:
    """Split the URL; the order of the parameters means nothing."""
    split = urlsplit(url)
    return split.netloc, split.path, parse_qs(split.query, strict_parsing=True)


@pytest.mark.parametrize("region", ["eu-central-1", "us-gov-west-1", "cn-north-1"])
@pytest.mark.parametrize("session", [None, "IQoJb3JpZ2luX2VjEJr//+=="])
def test_the_signature_is_that_of_botocore(region: str, session: str | None) -> None:
    credentials = EXAMPLE._replace(session_token=Secret(session) if session is not None else None)
    ours = presigned_url(credentials, region, now=NOW)
    assert parts(ours) == parts(by_botocore(credentials, region, NOW))
    assert ("X-Amz-Security-Token" in ours) == (session is not None)


TEXTS = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1)


@given(TEXTS, TEXTS, st.none() | TEXTS, st.floats(0, 4e9))
def test_any_credentials_at_any_time(access: str, secret: str, session: str | None, now: float) -> None:
    credentials = AwsCredentials(access, Secret(secret), Secret(session) if session is not None else None)
    ours = presigned_url(credentials, "eu-west-1", now=now)
    assert parts(ours) == parts(by_botocore(credentials, "eu-west-1", now))


def test_the_token_is_the_url_with_the_software_behind() -> None:
    token = msk_token(EXAMPLE, "eu-central-1", now=NOW, user_agent="aiokc/1.2 +x").reveal()
    assert "=" not in token
    url = urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert url == presigned_url(EXAMPLE, "eu-central-1", now=NOW) + "&User-Agent=aiokc%2F1.2%20%2Bx"
    assert "X-Amz-Expires=900" in url
    assert "X-Amz-Date=20231114T221320Z" in url


def test_it_goes_to_the_broker_by_oauthbearer() -> None:
    token = msk_token(EXAMPLE, "eu-central-1", now=NOW)
    mechanism = OAuthBearer(token, now=lambda: NOW, expires_at=NOW + LIFETIME, identity="AWS key 'AKIDEXAMPLE'")
    broker = ScriptedBroker()
    broker.accept(mechanism)
    assert broker.asked == [f"n,,\x01auth=Bearer {token.reveal()}\x01\x01".encode()]
    assert mechanism.identity == "AWS key 'AKIDEXAMPLE'"


@pytest.mark.parametrize(
    "region", ["", "eu", "eu-central-1/", "eu-central-1.evil.example", "EU-central-1", "eu-1\n", "-"]
)
def test_what_is_no_region(region: str) -> None:
    """The region becomes a part of a host's name, which is signed."""
    with pytest.raises(AuthenticationFailed, match="is no region of AWS"):
        msk_token(EXAMPLE, region, now=NOW)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"access_key": ""}, "the access key of AWS is empty"),
        ({"secret_key": Secret("")}, "the secret key of AWS is empty"),
        ({"secret_key": Secret("x\udc80")}, "the secret key of AWS contains a lone surrogate"),
        ({"session_token": Secret("")}, "the session token of AWS is empty"),
    ],
)
def test_credentials_that_are_none(given: dict[str, Any], message: str) -> None:
    with pytest.raises(AuthenticationFailed, match=message) as got:
        msk_token(EXAMPLE._replace(**given), "eu-central-1", now=NOW)
    assert got.value.__cause__ is None
    assert got.value.__context__ is None


def test_nothing_shows_the_keys() -> None:
    assert "wJalr" not in repr(EXAMPLE) + repr(msk_token(EXAMPLE, "eu-central-1", now=NOW))
