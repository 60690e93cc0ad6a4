"""Why a certificate is refused, by OpenSSL's codes; and what a handshake tells."""

from __future__ import annotations

import calendar

import pytest

from aiokc.core.doctor.certificates import Handshake, certificate_refused, handshake_failed, handshake_finding
from aiokc.core.doctor.reaching import Endpoint

KAFKA = Endpoint(host="kafka", port=9093)


@pytest.mark.parametrize(
    ("verify_code", "reason", "code"),
    [
        (10, "CERTIFICATE_VERIFY_FAILED", "tls.expired"),
        (18, "CERTIFICATE_VERIFY_FAILED", "tls.unknown_issuer"),
        (62, "CERTIFICATE_VERIFY_FAILED", "tls.wrong_name"),
        (23, "CERTIFICATE_VERIFY_FAILED", "tls.revoked"),
        (92, "CERTIFICATE_VERIFY_FAILED", "tls.strict"),
        (22, "CERTIFICATE_VERIFY_FAILED", "tls.certificate"),
        (0, "SSLV3_ALERT_BAD_CERTIFICATE", "tls.client_certificate"),
        (0, "TLSV13_ALERT_CERTIFICATE_REQUIRED", "tls.client_certificate"),
        (0, "SSLV3_ALERT_CERTIFICATE_REVOKED", "tls.certificate"),
    ],
)
def test_codes(verify_code: int, reason: str, code: str) -> None:
    found = certificate_refused(KAFKA, "it was refused (why): give another one", verify_code=verify_code, reason=reason)
    assert (found.code, found.text) == (code, "It was refused (why)")
    assert found.advice


def test_a_handshake_that_only_a_client_without_options_makes() -> None:
    enabled = ("TLSv1.2", "TLSv1.3")
    found = handshake_failed(KAFKA, "closed", reason="", spoken="TLSv1.2", enabled=("TLSv1.3",))
    assert found.code == "tls.version"
    found = handshake_failed(KAFKA, "closed", reason="NO_SHARED_CIPHER", spoken="TLSv1.2", enabled=enabled)
    assert (found.code, "without them (NO_SHARED_CIPHER)" in found.text) == ("tls.handshake", True)
    found = handshake_failed(KAFKA, "closed", reason="TLSV1_ALERT_PROTOCOL_VERSION", spoken="", enabled=enabled)
    assert found.code == "tls.version"


def made_with(certificate: dict[str, str]) -> Handshake:
    return Handshake(protocol="TLSv1.3", cipher="x", certificate=certificate, chain=0, seconds=0.1)


@pytest.mark.parametrize("certificate", [{}, {"notAfter": "never"}, {"notAfter": "Nov 31 00:00:00 2026 GMT"}])
def test_a_certificate_that_tells_nothing(certificate: dict[str, str]) -> None:
    """One whose end can't be read was verified all the same."""
    found = handshake_finding(KAFKA, made_with(certificate), 0.0)
    assert (found.code, found.details["expires"]) == ("tls.done", None)
    assert ("not verified" in found.text) == (not certificate)


def test_the_end_of_a_certificate_is_read_in_every_locale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process may run in French: OpenSSL writes English."""
    months = ["", "janv.", "févr.", "mars", "avril", "mai", "juin", "juil.", "août", "sept.", "oct.", "nov.", "déc."]
    monkeypatch.setattr(calendar, "month_abbr", months)
    monkeypatch.setattr("_strptime._getlang", lambda: ("fr_FR", "UTF-8"))  # else strptime() uses what it has cached
    found = handshake_finding(KAFKA, made_with({"notAfter": "Feb  3 04:05:06 2030 GMT"}), 0.0)
    assert found.details["expires"] == "2030-02-03T04:05:06+00:00"
