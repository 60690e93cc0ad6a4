"""A security context of Kerberos, by the optional package ``gssapi`` (the extra ``aiokc[kerberos]``)."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable
from typing import Any

from ...errors import AuthenticationFailed, ConfigError
from .gssapi import SecurityContext


def kerberos(
    service: str, host: str, *, principal: str | None = None, keytab: str | None = None
) -> Callable[[], SecurityContext]:
    """Return what opens a context for ``service`` on ``host``, the name that the broker advertises.

    The client's credentials come from ``keytab`` (its first principal, if ``principal`` is not given), or from the
    credential cache of the process's user. The callable imports ``gssapi``, reads files and may ask a KDC, so call it
    in a thread. It raises ConfigError where the package is missing.
    """

    def open_context() -> SecurityContext:
        try:
            gssapi = importlib.import_module("gssapi")
        except ImportError as error:
            raise ConfigError(
                f"sasl_mechanism 'GSSAPI' needs the package gssapi, which can't be imported ({error}): "
                "pip install 'aiokc[kerberos]', with the Kerberos library of the system (libkrb5-dev) before it"
            ) from error
        return _Context(gssapi, f"{service}@{host}", principal, keytab)

    return open_context


class _Context:
    def __init__(self, gssapi: Any, service: str, principal: str | None, keytab: str | None) -> None:
        self._flag = gssapi.RequirementFlag.mutual_authentication
        mechanism = gssapi.MechType.kerberos
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal is not None else None
        credentials = None
        if keytab is not None:
            # A cache of its own in memory: the tickets of the process's user are neither used nor replaced. All
            # connections share it, so that not each one asks the KDC.
            cache = hashlib.sha256(f"{keytab}\0{principal}".encode()).hexdigest()
            store = {"client_keytab": keytab, "ccache": f"MEMORY:aiokc-{cache}"}
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=[mechanism], store=store)
        elif name is not None:
            credentials = gssapi.Credentials(name=name, usage="initiate", mechs=[mechanism])
        # integrity: without it the last two messages, which are signed, could be exchanged on their way.
        flags = self._flag | gssapi.RequirementFlag.integrity | gssapi.RequirementFlag.out_of_sequence_detection
        self._context = gssapi.SecurityContext(
            name=gssapi.Name(service, gssapi.NameType.hostbased_service),
            creds=credentials,
            mech=mechanism,
            flags=flags,
            usage="initiate",
        )

    @property
    def complete(self) -> bool:
        if not self._context.complete:
            return False
        if not self._context.actual_flags & self._flag:
            raise AuthenticationFailed("Kerberos: the broker has not proven who it is")
        return True

    @property
    def principal(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes:
        answer: bytes | None = self._context.step(token)
        return answer or b""

    def unwrap(self, message: bytes) -> bytes:
        content: bytes = self._context.unwrap(message).message
        return content

    def wrap(self, message: bytes) -> bytes:
        signed: bytes = self._context.wrap(message, False).message
        return signed
