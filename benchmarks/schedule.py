"""The order of the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .cases import Case
from .clients import Client


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement to make; rounds count from 1."""

    round: int
    case: Case
    client: Client


def schedule(cases: Sequence[Case], clients: Sequence[Client], rounds: int) -> Iterator[Turn]:
    """Return the turns: in each round every client once in each of its cases; each round begins with another client.

    So slow changes of the machine affect all clients alike, and no client always comes first.
    """
    for number in range(rounds):
        shift = number * len(clients) // rounds if rounds <= len(clients) else number % len(clients)
        for case in cases:
            for client in (*clients[shift:], *clients[:shift]):
                if client.reads(case):
                    yield Turn(number + 1, case, client)
