"""What a peer speaks, by its first bytes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.core.doctor.first_reply import FirstReply, Speaks, no_api_versions, no_tls_at_all, plaintext_listener, speaks
from aiokc.core.doctor.reaching import Endpoint
from aiokc.core.doctor.report import Verdict

ID = 0x61696F6B
FRAME = (300).to_bytes(4, "big") + ID.to_bytes(4, "big")


@pytest.mark.parametrize(
    ("head", "closed", "kind"),
    [
        (FRAME, False, Speaks.KAFKA),
        (FRAME + b"\0\0", True, Speaks.KAFKA),
        (FRAME[:7], True, Speaks.OTHER),
        ((300).to_bytes(4, "big") + bytes(4), False, Speaks.OTHER),  # another correlation id
        ((5).to_bytes(4, "big") + ID.to_bytes(4, "big"), False, Speaks.OTHER),  # too short for an answer
        ((1 << 21).to_bytes(4, "big") + ID.to_bytes(4, "big"), False, Speaks.OTHER),
        (b"\x15\x03\x03\x00\x02\x02\x50", True, Speaks.TLS),
        (b"\x15\x03", False, Speaks.TLS),
        (b"HTTP/1.1 400 Bad Request", False, Speaks.HTTP),
        (b"<!DOCTYPE html>", False, Speaks.HTTP),
        (b"SSH-2.0-x", False, Speaks.OTHER),
        (b"", True, Speaks.CLOSED),
        (b"", False, Speaks.SILENT),
    ],
)
def test_first_bytes(head: bytes, closed: bool, kind: Speaks) -> None:
    assert speaks(FirstReply(head, closed, 0.1), ID) is kind


def test_the_alert_read_as_a_length_is_no_frame() -> None:
    assert int.from_bytes(b"\x15\x03\x03\x00", "big") == 352_518_912


@settings(max_examples=40, deadline=None)
@given(head=st.binary(max_size=64), closed=st.booleans(), said=st.text(max_size=200))
def test_all_bytes_give_a_finding(head: bytes, closed: bool, said: str) -> None:
    reply = FirstReply(head, closed, 0.1)
    kind = speaks(reply, ID)
    for endpoint in (Endpoint(host="kafka", port=9092), Endpoint(host="kafka", port=9092, node_id=2)):
        for protocol in ("PLAINTEXT", "SASL_SSL"):
            for tls_answers in (False, True):
                found = no_api_versions(endpoint, reply, kind, protocol=protocol, tls_answers=tls_answers, said=said)
                assert found.verdict is Verdict.PROBLEM
                assert found.text.isprintable()
        assert no_tls_at_all(endpoint, reply, kind, said).advice


@pytest.mark.parametrize(
    ("ours", "tls", "plain"),
    [("PLAINTEXT", "'SSL'", None), ("SASL_PLAINTEXT", "'SASL_SSL'", None), ("SASL_SSL", None, "'SASL_PLAINTEXT'")],
)
def test_the_protocol_to_try(ours: str, tls: str | None, plain: str | None) -> None:
    endpoint, alert = Endpoint(host="kafka", port=9092), FirstReply(b"\x15\x03\x03", True, 0.1)
    if tls is not None:
        found = no_api_versions(endpoint, alert, Speaks.TLS, protocol=ours, tls_answers=False, said="")
        assert f"security_protocol={tls}" in found.advice
    if plain is not None:
        assert f"security_protocol={plain}" in plaintext_listener(endpoint, FirstReply(FRAME, False, 0.1), ours).advice
