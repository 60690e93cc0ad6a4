"""Tokens in files, which another program keeps fresh: a projected service account of Kubernetes, for instance."""

from __future__ import annotations

import os
from typing import Final
from urllib.parse import unquote, urlsplit

from ....config import SecurityConfig
from ....core.sasl.mechanism import HiddenBytes
from ....errors import AuthenticationFailed, ConfigError
from ....secret import Secret
from ....token_provider import OAuthToken
from ...own_thread import OwnThread
from ..application_code import called
from .checked_token import checked

_MECHANISM: Final = "OAUTHBEARER"
_MOST_BYTES: Final = 1 << 20


class TokenFileAsker:
    """Reads the token in a file. White space around it does not count."""

    in_thread = True

    def __init__(self, path: str) -> None:
        self.name = f"the token provider (file {path!r})"
        self._path = path
        self._thread = OwnThread("aiokc token file")

    async def ask(self) -> OAuthToken:
        return await called(self.name, _MECHANISM, self._thread.run(self._read))

    def close(self) -> None:
        self._thread.close()

    def _read(self) -> OAuthToken:
        token = checked(OAuthToken(read_token(self._path, self.name)), self.name, retriable=True)
        if isinstance(token, AuthenticationFailed):
            raise token
        return token


def token_file_path(config: SecurityConfig) -> str | None:
    """Return the path in a file: URL of ``sasl_oauthbearer_token_endpoint_url``; None for other URLs and none.

    Raises ConfigError for a URL that names another host, or is none.
    """
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None or not url.lower().startswith("file:"):
        return None
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"sasl_oauthbearer_token_endpoint_url is no URL: {error}") from error
    path = _path(parts.path)
    if parts.netloc not in ("", "localhost") or not path or parts.query or parts.fragment:
        raise ConfigError(f"sasl_oauthbearer_token_endpoint_url={url!r} must be 'file:///' and an absolute path")
    return path


def _path(path: str) -> str:
    """Return the path of the file system for the one in a URL."""
    if os.name != "nt":
        return unquote(path, errors="surrogateescape")
    from urllib.request import url2pathname  # imports http.client, which takes long

    return url2pathname(path)


def read_token(path: str, name: str) -> Secret:
    """Return the token or assertion in a file. Raises AuthenticationFailed, which begins with ``name``."""
    try:
        with open(path, "rb") as file:
            data = HiddenBytes(file.read(_MOST_BYTES + 1))
    except OSError as error:
        raise AuthenticationFailed(f"{name}: can't read {path!r} ({error.strerror})", retriable=True) from error
    token, problem = _token_in(data)
    if problem:
        raise AuthenticationFailed(f"{name}: {path!r} {problem}", retriable=True)
    return token


def _token_in(data: bytes) -> tuple[Secret, str]:
    """Return the token and what is wrong with it. It raises nothing: a UnicodeDecodeError carries the content."""
    try:
        token = Secret(data.decode("ascii").strip())
    except UnicodeDecodeError:
        return Secret(""), "holds characters that no token has"
    if len(data) > _MOST_BYTES:
        return token, f"is longer than {_MOST_BYTES} bytes"
    return token, "" if token else "is empty"
