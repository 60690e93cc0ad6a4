"""Tokens in files, which another program keeps fresh: a projected service account of Kubernetes, for instance."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from ....config import SecurityConfig
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
        return checked(OAuthToken(read_token(self._path, self.name)), self.name, retriable=True)


def token_file_path(config: SecurityConfig) -> str | None:
    """Return the path in a file: URL of ``sasl_oauthbearer_token_endpoint_url``; None for other URLs and none.

    Raises ConfigError for a URL that names another host.
    """
    url = config.sasl_oauthbearer_token_endpoint_url
    if url is None or not url.lower().startswith("file:"):
        return None
    from urllib.request import url2pathname  # imports http.client, which takes long

    parts = urlsplit(url)
    path = url2pathname(parts.path)
    if parts.netloc not in ("", "localhost") or not path or parts.query or parts.fragment:
        raise ConfigError(f"sasl_oauthbearer_token_endpoint_url={url!r} must be 'file:///' and an absolute path")
    return path


def read_token(path: str, name: str) -> Secret:
    """Return the token or assertion in a file. Raises AuthenticationFailed, which begins with ``name``."""
    problem = ""
    try:
        with open(path, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("ascii").strip()
    except OSError as error:
        raise AuthenticationFailed(f"{name}: can't read {path!r} ({error.strerror})", retriable=True) from error
    except UnicodeDecodeError:
        problem = "holds characters that no token has"
    else:
        if not text:
            problem = "is empty"
        elif len(data) > _MOST_BYTES:
            problem = f"is longer than {_MOST_BYTES} bytes"
    if problem:  # outside of the except block: a UnicodeDecodeError carries the content
        raise AuthenticationFailed(f"{name}: {path!r} {problem}", retriable=True)
    return Secret(text)
