"""``LoginFaults``: the faults of a cluster's logins that are set, and how many logins each of them still hits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

FaultName: TypeAlias = Literal[
    "refuse_login",
    "slow_login",
    "close_after_handshake",
    "wrong_server_signature",
    "iterations",
    "foreign_nonce",
    "oauth_error",
    "illegal_sasl_state",
    "half_handshake",
]


@dataclass(eq=False)
class LoginFault:
    """One fault of the next ``times`` logins (None: of all). ``hits`` counts the logins that got it."""

    value: Any
    times: int | None
    user: str | None = None
    hits: int = 0

    def cancel(self) -> None:
        """Hit no more logins."""
        self.times = 0

    def hits_user(self, user: str | None) -> bool:
        return (self.times is None or self.hits < self.times) and self.user in (None, user)


class LoginFaults:
    """The faults that are set. The oldest one of a name hits first."""

    def __init__(self) -> None:
        self._set: list[tuple[FaultName, LoginFault]] = []

    def add(self, name: FaultName, value: Any, times: int | None, user: str | None = None) -> LoginFault:
        """Set a fault."""
        fault = LoginFault(value, times, user)
        self._set.append((name, fault))
        return fault

    def take(self, name: FaultName, user: str | None = None) -> LoginFault | None:
        """Return the fault of this name that hits a login of ``user`` now, and count it; None if there is none."""
        for one, fault in self._set:
            if one == name and fault.hits_user(user):
                fault.hits += 1
                return fault
        return None

    def clear(self) -> None:
        """Set no more faults."""
        self._set.clear()
