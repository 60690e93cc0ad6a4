"""KerberosLogin: the mechanism GSSAPI with a keytab, or with the tickets of the process's user."""

from __future__ import annotations

import asyncio
import os
from typing import Final

from ...config import SecurityConfig
from ...core.sasl.gssapi import Gssapi
from ...core.sasl.kerberos import kerberos
from ...core.sasl.mechanism import Mechanism
from ...errors import ConfigError


class KerberosLogin:
    """Makes the mechanism GSSAPI for the service of each broker: ``<service>@<the host that the broker advertises>``.

    The Kerberos library keeps the tickets, and gets new ones as they end. It reads the keytab each time, so a keytab
    may be replaced while the client runs.
    """

    failure: Final = None  # no login waits

    def __init__(self, config: SecurityConfig) -> None:
        self._service = config.sasl_kerberos_service_name
        self._host = config.sasl_kerberos_domain_name
        self._principal = config.sasl_kerberos_principal
        keytab = config.sasl_kerberos_keytab
        self._keytab = None if keytab is None else os.fspath(keytab)

    async def login(self, host: str) -> Mechanism:
        return self._made(host)

    def current(self, host: str) -> Mechanism | None:
        return self._made(host)

    def refused(self, mechanism: Mechanism) -> None:
        """There is nothing to forget: the Kerberos library decides which ticket it uses."""

    async def run(self) -> None:
        """Wait until cancelled: nothing is due ahead of time."""
        await asyncio.Event().wait()

    def _made(self, host: str) -> Mechanism:
        name = self._host or host.rstrip(".")
        if not name:
            raise ConfigError("GSSAPI needs the name of the broker's host: give it, or sasl_kerberos_domain_name")
        whose = "the Kerberos principal" if self._principal is None else f"principal {self._principal!r}"
        return Gssapi(kerberos(self._service, name, principal=self._principal, keytab=self._keytab), identity=whose)
