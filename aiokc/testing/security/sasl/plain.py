"""The server's half of PLAIN (RFC 4616), with the messages of Kafka's PlainSaslServer."""

from __future__ import annotations

from ..accounts import Users
from .refused_login import LoginRefused, WrongCredentials


class PlainServer:
    """One login by PLAIN."""

    def __init__(self, users: Users) -> None:
        self.user: str | None = None
        self.is_complete = False
        self.expires_ms: int | None = None
        self._users = users

    def respond(self, message: bytes) -> bytes:
        """Check the only message, "authzid NUL user NUL password", and return the empty answer. Raises LoginRefused."""
        try:
            authorization_id, user, password = message.decode().split("\0")
        except ValueError as error:
            raise WrongCredentials("a PLAIN message has three parts, in UTF-8") from error
        if not user or not password:
            raise WrongCredentials("the user or the password is empty")
        if not self._users.has_password(user, password):
            raise LoginRefused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != user:
            raise LoginRefused(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.user, self.is_complete = user, True
        return b""
