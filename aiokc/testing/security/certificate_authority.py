"""``Certificates``: a certificate authority of the test's own, and the certificates of brokers and clients."""

from __future__ import annotations

import os
import ssl
import tempfile
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import trustme

#: The names that the brokers' certificate is for unless a test says otherwise.
HOSTS: Final = ("localhost", "127.0.0.1", "::1")


class Certificates:
    """A new certificate authority, which signs all certificates that this object issues.

    ``hosts`` are the names and addresses of the brokers' certificate. Needs the package trustme.

        certificates = Certificates()
        async with Cluster(tls=certificates) as cluster:
            ... ssl_truststore_certificates=certificates.ca_pem ...
    """

    def __init__(self, *hosts: str) -> None:
        self._ca: trustme.CA = _trustme().CA()
        self._hosts = hosts or HOSTS
        self._server_pem: str | None = None

    @property
    def ca_pem(self) -> str:
        """The authority's certificate: what clients have to trust."""
        return self._ca.cert_pem.bytes().decode()

    @property
    def server_pem(self) -> str:
        """The brokers' certificate: its private key and its chain."""
        if self._server_pem is None:
            self._server_pem = self.issue(*self._hosts)
        return self._server_pem

    def issue(
        self,
        *hosts: str,
        user: str | None = None,
        not_before: datetime | None = None,
        not_after: datetime | None = None,
    ) -> str:
        """Issue a certificate for ``hosts``, or for a ``user``; return its private key and its chain as PEM."""
        issued = self._ca.issue_cert(*hosts, common_name=user, not_before=not_before, not_after=not_after)
        return issued.private_key_and_cert_chain_pem.bytes().decode()

    def expired(self, *hosts: str) -> str:
        """Issue a certificate that ended yesterday.

        cluster.swap_certificate(certificates.expired())
        """
        now = datetime.now(UTC)
        return self.issue(
            *(hosts or self._hosts), not_before=now - timedelta(days=2), not_after=now - timedelta(days=1)
        )

    def client_pem(self, user: str) -> str:
        """Issue a client certificate. A cluster takes its common name for the user's name."""
        return self.issue(user=user)

    def client_context(self, user: str | None = None) -> ssl.SSLContext:
        """Return a context for clients, which trusts this authority, and has a certificate of ``user``."""
        context = ssl.create_default_context(cadata=self.ca_pem)
        if user is not None:
            load_pem(context, self.client_pem(user))
        return context

    def server_context(self, pem: str | None = None, client_auth: str = "none") -> ssl.SSLContext:
        """Return a context for brokers; ``client_auth`` is "none", "requested" or "required".

        Raises ssl.SSLError where ``pem`` does not hold a private key and its certificate.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        load_pem(context, pem or self.server_pem)
        if client_auth != "none":
            context.load_verify_locations(cadata=self.ca_pem)
            context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
        return context


def common_name(certificate: dict[str, Any] | None) -> str | None:
    """Return the common name in a client's certificate, as ssl describes it; None without a certificate or a name."""
    subject = (certificate or {}).get("subject", ())
    return next((value for names in subject for field, value in names if field == "commonName"), None)


def load_pem(context: ssl.SSLContext, pem: str) -> None:
    """Load a private key and its chain. OpenSSL reads them from files only."""
    descriptor, path = tempfile.mkstemp(suffix=".pem")  # readable for its owner only
    try:
        with open(descriptor, "w", encoding="utf-8") as file:  # Windows opens no file twice
            file.write(pem)
        context.load_cert_chain(path, password=_no_password)
    finally:
        os.unlink(path)


def _no_password() -> str:
    """Fail where OpenSSL would ask for a password on the terminal."""
    raise ValueError("the private key is encrypted: a broker of the cluster takes it in plain PEM")


def _trustme() -> Any:
    try:
        import trustme
    except ImportError as error:
        raise ImportError("aiokc.testing makes certificates with trustme: pip install trustme") from error
    return trustme
