"""AWS_MSK_IAM: the token for Amazon MSK, a URL signed with AWS credentials (Signature Version 4)."""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import quote

from ...errors import AuthenticationFailed
from ...secret import Secret
from .mechanism import utf8

#: How long MSK accepts a token, in seconds.
LIFETIME: Final = 900

_REGION: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"
_NOTHING: Final = hashlib.sha256(b"").hexdigest()  # a GET has no body


class AwsCredentials(NamedTuple):
    """Credentials of AWS. ``session_token`` is there where they are temporary."""

    access_key: str
    secret_key: Secret
    session_token: Secret | None = None


def msk_token(credentials: AwsCredentials, region: str, *, now: float, user_agent: str = "aiokc") -> Secret:
    """Return the token that MSK accepts from ``now``, a Unix time in seconds, for LIFETIME seconds.

    It is the URL in base64 (URL-safe, no padding), as Amazon's own signers make it. Raises AuthenticationFailed.
    """
    url = f"{presigned_url(credentials, region, now=now)}&User-Agent={quote(user_agent, safe='')}"
    return Secret(urlsafe_b64encode(url.encode()).decode().rstrip("="))


def presigned_url(credentials: AwsCredentials, region: str, *, now: float) -> str:
    """Return the signed URL of the action kafka-cluster:Connect. Raises AuthenticationFailed."""
    if _REGION.fullmatch(region) is None:
        raise AuthenticationFailed(f"{region!r} is no region of AWS; sasl_aws_region needs one such as 'eu-central-1'")
    utf8(credentials.access_key, "access key of AWS")
    secret_key = utf8(credentials.secret_key, "secret key of AWS")
    session_token = credentials.session_token
    host = f"kafka.{region}.amazonaws.com"
    moment = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{_SERVICE}/aws4_request"
    parameters = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.access_key}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(LIFETIME),
        "X-Amz-SignedHeaders": "host",
    }
    if session_token is not None:
        parameters["X-Amz-Security-Token"] = utf8(session_token, "session token of AWS").decode()
    query = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(parameters.items()))
    request = "\n".join(("GET", "/", query, f"host:{host}\n", "host", _NOTHING))
    to_sign = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    signature = _hmac(_signing_key(secret_key, moment[:8], region), to_sign).hex()
    return f"https://{host}/?{query}&X-Amz-Signature={signature}"


def _signing_key(secret_key: bytes, day: str, region: str) -> bytes:
    key = b"AWS4" + secret_key
    for part in (day, region, _SERVICE, "aws4_request"):
        key = _hmac(key, part)
    return key


def _hmac(key: bytes, message: str) -> bytes:
    return hmac.digest(key, message.encode(), "sha256")
