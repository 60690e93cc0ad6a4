"""AwsAsker: tokens for Amazon MSK, signed with credentials that botocore finds, or with those of the environment."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from ....config import ClusterConfig, SecurityConfig
from ....core.sasl.aws_msk_iam import LIFETIME, AwsCredentials, msk_token
from ....errors import AuthenticationFailed
from ....secret import Secret
from ....token_provider import OAuthToken
from ...own_thread import OwnThread
from ..application_code import called

_MECHANISM: Final = "AWS_MSK_IAM"
_SESSION_NAME: Final = "aiokc"
# b-1.mycluster.abc123.c2.kafka.eu-west-1.amazonaws.com, boot-abc.c1.kafka-serverless.eu-west-1.amazonaws.com
_MSK_HOST: Final = re.compile(r".+\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?\.?", re.IGNORECASE)
_INSTALL: Final = "needs the package botocore: pip install 'aiokc[aws]'"


class AwsOptions(NamedTuple):
    """The options of AWS; None where the environment and the files of AWS decide.

    ``region``: that of the option, or else that in the name of a bootstrap server. A token is good for one region only,
    so the cluster's counts, not the one that the client runs in.
    """

    region: str | None
    profile: str | None
    role_arn: str | None

    @classmethod
    def of(cls, config: SecurityConfig) -> AwsOptions:
        hosts = [host for host, _ in config.addresses] if isinstance(config, ClusterConfig) else []
        region = config.sasl_aws_region or next(filter(None, map(_region_in, hosts)), None)
        return cls(region, config.sasl_aws_profile, config.sasl_aws_role_arn)

    @property
    def identity(self) -> str:
        """Whose credentials these are. Keys that rotate do not change it: the principal is the same."""
        if self.role_arn is not None:
            return f"AWS role {self.role_arn!r}"
        return "AWS credentials" if self.profile is None else f"AWS profile {self.profile!r}"


class AwsAsker:
    """Signs tokens in a thread: importing botocore takes long, and its credentials may come over the network."""

    in_thread = True

    def __init__(self, options: AwsOptions, clock: Callable[[], float]) -> None:
        self.name = f"the token provider ({options.identity})"
        self._options = options
        self._clock = clock
        self._session: Any = None  # botocore's, kept for the next token where it renews its credentials itself
        self._thread = OwnThread("aiokc aws")

    async def ask(self) -> OAuthToken:
        return await called(self.name, _MECHANISM, self._thread.run(self._sign))

    def close(self) -> None:
        self._thread.close()

    def _sign(self) -> OAuthToken:
        """Return a token, signed with the credentials that are there now.

        A session of botocore's reads keys out of a file or the environment once. So it is used for one token, or for
        ever it would sign with keys that were replaced, and are good no more. A session whose credentials botocore
        renews (those of a machine, of SSO) is kept, until they can't be had: a profile's role is assumed with keys that
        were read once, too.
        """
        session, self._session = self._session or self._new_session(), None
        region = self._region(session)
        credentials = self._credentials(session, region)
        if session is not None and hasattr(session.get_credentials(), "refresh_needed"):
            self._session = session
        now = self._clock()
        return OAuthToken(msk_token(credentials, region, now=now), now + LIFETIME)

    def _new_session(self) -> Any:
        """Return one that has read nothing yet; None without botocore."""
        try:
            botocore_session = importlib.import_module("botocore.session")
        except ImportError as error:
            for option in ("profile", "role_arn"):
                if getattr(self._options, option) is not None:
                    raise self._problem(f"sasl_aws_{option} {_INSTALL}") from error
            return None
        return botocore_session.Session(profile=self._options.profile)

    def _region(self, session: Any) -> str:
        region = self._options.region or os.environ.get("AWS_REGION")
        if not region and session is not None:
            region = session.get_config_variable("region")
        if not region and not (region := os.environ.get("AWS_DEFAULT_REGION")):
            raise self._problem("no region is known: set sasl_aws_region to that of the cluster")
        return region

    def _credentials(self, session: Any, region: str) -> AwsCredentials:
        if session is None:
            return self._of_environment()
        if self._options.role_arn is not None:
            service = session.create_client("sts", region_name=region)
            answer = service.assume_role(RoleArn=self._options.role_arn, RoleSessionName=_SESSION_NAME)
            found = answer["Credentials"]
            return _made(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"])
        credentials = session.get_credentials()
        if credentials is None:
            raise self._problem("botocore finds no credentials: neither in the environment, nor in files, nor a role")
        frozen = credentials.get_frozen_credentials()
        return _made(frozen.access_key, frozen.secret_key, frozen.token)

    def _of_environment(self) -> AwsCredentials:
        key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
        if not key or not secret:
            raise self._problem(
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not both set in the environment; to find credentials "
                f"in any other place, the client {_INSTALL}"
            )
        return _made(key, secret, os.environ.get("AWS_SESSION_TOKEN"))

    def _problem(self, text: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"{self.name}: {text}", mechanism=_MECHANISM, retriable=True)


def _region_in(host: str) -> str | None:
    found = _MSK_HOST.fullmatch(host)
    return None if found is None else found[1].lower()


def _made(key: str, secret: str, session_token: str | None) -> AwsCredentials:
    return AwsCredentials(key, Secret(secret), Secret(session_token) if session_token else None)
