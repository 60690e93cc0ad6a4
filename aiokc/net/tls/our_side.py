"""OurSide: what this client brings to a TLS handshake, in words for error messages."""

from __future__ import annotations

from dataclasses import dataclass

from .der import Validity


@dataclass(frozen=True, slots=True, kw_only=True)
class OurSide:
    """What this client brings to a TLS handshake.

    ``trusts``: where the authorities come from that may sign a broker's certificate. ``certificate``: where this
    client's own certificate comes from (None: it has none; "ssl_context": there may be one in that). ``valid``: from
    when until when that certificate is valid, if that is known. ``versions``: the versions of TLS that it speaks.
    """

    trusts: str
    certificate: str | None
    valid: Validity | None
    versions: str
