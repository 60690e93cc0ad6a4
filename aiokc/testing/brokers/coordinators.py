"""Which broker coordinates a group or a transactional id, and which broker takes over when that one dies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from ...error_codes import ErrorCode
from ..refusal import Refusal

_PARTITIONS: Final = 50  # offsets.topic.num.partitions, transaction.state.log.num.partitions


class Living(Protocol):
    """A broker that is alive or not."""

    alive: bool


class Coordinators:
    """The broker of each key (a group id or a transactional id).

    A key gets its broker at the first request for it, and keeps it until that broker dies or the key is moved. One that
    was moved to a broker that is down keeps that: nobody has noticed yet that it is down.
    """

    def __init__(self, nodes: Mapping[int, Living]) -> None:
        self._nodes = nodes
        self._placed: dict[str, int] = {}
        self._unnoticed: set[str] = set()  # keys whose broker was down when they were moved there

    def of(self, key: str) -> int:
        """Return the broker of a key: one that is alive, or whose death is unnoticed. Raises Refusal without one."""
        placed = self._placed.get(key)
        if placed is not None and (self._nodes[placed].alive or key in self._unnoticed):
            return placed
        ids = list(self._nodes)
        first = abs(_java_hash(key)) % _PARTITIONS if placed is None else ids.index(placed) + 1
        for step in range(len(ids)):
            candidate = ids[(first + step) % len(ids)]
            if self._nodes[candidate].alive:
                self._placed[key] = candidate
                return candidate
        raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker lives")

    def place(self, key: str, node_id: int) -> None:
        """Move a key to a broker. From one that is down it moves on once that has come up, and died again."""
        self._placed[key] = node_id
        if self._nodes[node_id].alive:
            self._unnoticed.discard(key)
        else:
            self._unnoticed.add(key)

    def broker_came(self, node_id: int) -> None:
        """Let the keys of a broker that is alive again move on when it dies."""
        self._unnoticed.difference_update(self.keys_of(node_id))

    def keys_of(self, node_id: int) -> list[str]:
        """Return the keys that a broker coordinates."""
        return [key for key, placed in self._placed.items() if placed == node_id]


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode, from which Kafka computes the partition of a key, and so its broker."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFF_FFFF
    return value if value < 1 << 31 else value - (1 << 32)
