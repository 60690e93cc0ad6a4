"""PLAIN (RFC 4616): the user name and the password, as they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...secret import Secret
from .mechanism import Conversation, utf8


class Plain:
    """The mechanism PLAIN. The broker learns the password, so the connection must be encrypted."""

    name: Final = "PLAIN"
    expires_at: Final = None

    def __init__(self, username: str, password: Secret) -> None:
        self.identity = f"user {username!r}"
        self.secrets: Sequence[Secret] = (password,)
        self._username = username
        self._password = password

    def conversation(self) -> Conversation:
        # The authorization identity is left empty: Kafka refuses any that is not the user itself. Some brokers say
        # something in their answer, which has no meaning in PLAIN.
        user, password = utf8(self._username, "user name"), utf8(self._password, "password")
        yield b"\0" + user + b"\0" + password

    def advice(self) -> str:
        return "an unknown user and a wrong password look the same"
