"""Token providers that were written for aiokafka and kafka-python work here unchanged."""

from __future__ import annotations

import time
import warnings

import pytest
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider

from aiokc import OAuthToken, TokenProvider
from aiokc.config import SecurityConfig
from aiokc.core.sasl.mechanism import Mechanism
from aiokc.net.credentials.credentials import Credentials

from .tokens.loopback_idp import jwt

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its resources in a deprecated way
    from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

EXPIRES_AT = float(int(time.time() + 3600))


class OfAiokafka(AiokafkaProvider):  # type: ignore[misc]
    async def token(self) -> str:
        return jwt(sub="alice", exp=EXPIRES_AT)

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class OfKafkaPython(KafkaPythonProvider):  # type: ignore[misc]
    def token(self) -> str:
        return jwt(sub="alice", exp=EXPIRES_AT)


class OfAiokc:
    async def token(self) -> OAuthToken:
        return OAuthToken(jwt(sub="alice"), EXPIRES_AT)


async def login(provider: TokenProvider) -> Mechanism:
    config = SecurityConfig(
        security_protocol="SASL_SSL", sasl_mechanism="OAUTHBEARER", sasl_oauth_token_provider=provider
    )
    mechanism = await Credentials(config).login()
    assert mechanism.identity == "token of subject 'alice'"
    assert mechanism.expires_at == EXPIRES_AT
    return mechanism


@pytest.mark.parametrize("kind", [OfAiokafka, OfKafkaPython, OfAiokc])
async def test_providers_fit(kind: type[TokenProvider]) -> None:
    message = next((await login(kind())).conversation())
    assert isinstance(message, bytes)
    assert message.endswith(b"\x01logicalCluster=lkc-1\x01\x01") is (kind is OfAiokafka)
