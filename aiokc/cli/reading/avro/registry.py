"""A schema registry, asked by HTTP: what it has, what it says that it does not have, and what is no answer at all."""

from __future__ import annotations

import base64
import json
import ssl
from time import monotonic
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler

from ...problems import Problem, UsageProblem, quoted
from ..decoding import Undecodable

_LONGEST_SCHEMA = 16 << 20
_GONE = (404, 410)
#: What a registry says that has no such subject, version or schema. A 404 without it is of another server, or path.
_NOT_THERE = (40401, 40402, 40403)
_LATER = (429, 500, 502, 503, 504)  # statuses of a registry that may answer soon
#: The variable with a registry's user and password, by the name that it has for Confluent's tools.
USER_INFO: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"


class RegistryAway(Problem):
    """The registry does not answer now, or can't: it may soon."""

    passes = True


class NoSuchPath(Problem):
    """A 404 without a registry's own code: of another server, or of a registry that is too old for the path."""


def checked_address(address: str | None) -> str:
    """Return a registry's address without a slash at its end. Raises UsageProblem."""
    if address is None:
        raise UsageProblem("avro needs the address of the schema registry: -r http://HOST:8081")
    if "@" in address:  # not shown: it may be user:password@host
        raise UsageProblem(
            "-r: the address of a schema registry has no '@': everybody on this machine sees the command line; "
            f"give USER:PASSWORD in ${USER_INFO}"
        )
    try:
        parts = urlsplit(address)
        (parts.hostname or "").encode("idna")
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise UsageProblem(f"-r {quoted(address)} is no address: {error}") from error
    if parts.scheme not in ("http", "https"):
        raise UsageProblem(f"-r {address}: the address of a schema registry begins with http:// or https://")
    if not is_whole:
        raise UsageProblem(f"-r {quoted(address)}: write http://HOST:PORT")
    if not parts.path.isascii() or not address.isprintable() or " " in address or parts.query or parts.fragment:
        raise UsageProblem(f"-r {quoted(address)}: a path has no spaces, no ? and no #; write other letters as %XX")
    return address.rstrip("/")


class Registry:
    """Asks the registry at an address for one thing at a time. ``user_info``: "USER:PASSWORD", if it wants one."""

    def __init__(self, address: str | None, timeout_s: float, user_info: str) -> None:
        self.address, self._timeout_s = checked_address(address), timeout_s
        self._login = f"Basic {base64.b64encode(user_info.encode()).decode()}" if user_info else ""

    def schema(self, url: str, ends: float) -> dict[str, Any]:
        """Return the schema that the registry has there. Raises as ``answer()`` does."""
        found = self.answer(url, ends)
        if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
            raise Problem(f"{url} answered no schema", "is -r the address of a schema registry?")
        return found

    def answer(self, url: str, ends: float) -> Any:
        """Return what the registry answers. Raises Undecodable where it has no such thing, else Problem.

        What is no JSON is no answer of a registry, but of a proxy or of another server, or it was cut. ``ends``: by
        the monotonic clock, when an answer that comes byte by byte has taken too long.
        """
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, build_opener

        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if self._login:
            request.add_unredirected_header("Authorization", self._login)  # another host gets no password
        try:
            try:
                with build_opener(_Redirects).open(request, timeout=self._timeout_s) as answer:
                    body = _body(answer, ends)
                    announced = int(answer.headers["Content-Length"] or 0)
            except HTTPError as error:
                with error:
                    raise _refusal(url, error.code, str(error.reason), _body(error, ends)) from None
        except (OSError, HTTPException, ValueError) as error:  # a ValueError: of the address that it leads to
            reason = getattr(error, "reason", error)
            kind = Problem if isinstance(reason, ssl.SSLCertVerificationError) else RegistryAway
            raise kind(f"the schema registry does not answer: {url}: {reason}") from error
        if len(body) > _LONGEST_SCHEMA:
            raise Undecodable(f"{url} answered a schema of more than {_LONGEST_SCHEMA} bytes")
        if missing := max(0, announced - len(body)):
            raise RegistryAway(f"the schema registry does not answer: {url}: {missing} bytes less than it announced")
        try:
            return json.loads(body)
        except ValueError as error:
            raise Problem(f"{url} answered no JSON: {error}", "is -r the address of a schema registry?") from error


def _body(answer: Any, ends: float) -> bytes:
    """Read up to the limit of a schema, and a little more. Raises TimeoutError at ``ends``."""
    pieces: list[bytes] = []
    size = 0
    while size <= _LONGEST_SCHEMA and (piece := answer.read1(1 << 16)):
        pieces.append(piece)
        size += len(piece)
        if monotonic() >= ends:
            raise TimeoutError("timed out")
    return b"".join(pieces)


def _refusal(url: str, status: int, reason: str, body: bytes) -> Exception:
    said = f"{url} answered {status} {reason}"
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if status in _GONE:
        if isinstance(answer, dict) and answer.get("error_code") in _NOT_THERE:
            return Undecodable(said)
        return NoSuchPath(f"the schema registry refuses: {said}", "is -r the address of a schema registry?")
    return (RegistryAway if status in _LATER else Problem)(f"the schema registry refuses: {said}")


class _Redirects(HTTPRedirectHandler):
    """Follows a registry to another place by the registry's own scheme or by https:, and not to ftp: or the like."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in (req.type, "https"):
            fp.close()
            raise Problem(f"the schema registry refuses: {req.full_url} answered {code}, and leads to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)
