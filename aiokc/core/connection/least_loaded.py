"""Which broker to ask when any will do (Kafka's least-loaded node), and when to go back to the bootstrap addresses."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the choice needs to know of a broker. Times in seconds, on the caller's clock.

    ``failed``: the last thing that happened with it was a failure; it is left alone until ``retry_at``.
    ``muted_until``: it throttles this client until then (KIP-219).
    """

    node_id: int
    connected: bool = False
    connecting: bool = False
    in_flight: int = 0
    muted_until: float = 0.0
    retry_at: float = 0.0
    failed: bool = False


def least_loaded(nodes: Sequence[NodeView], tried: Set[int], *, now: float) -> int | None:
    """Return the node to ask next, or None if all of them were tried.

    A connected one before one that is being connected to, before one that must be connected first; a throttled one
    after those, one that failed last. Among equals the one with the fewest requests in flight, then the one that may be
    used soonest, then the first.
    """

    def rank(node: NodeView) -> tuple[int, int, float]:
        if node.failed:
            return 4, 0, node.retry_at
        if node.muted_until > now:
            return 3, node.in_flight, node.muted_until
        return (0 if node.connected else 1 if node.connecting else 2), node.in_flight, 0.0

    fresh = [node for node in nodes if node.node_id not in tried]
    return min(fresh, key=rank).node_id if fresh else None


def candidates(brokers: Sequence[NodeView], bootstrap: Sequence[NodeView], *, overdue: bool) -> Sequence[NodeView]:
    """Return the nodes to choose from: the known brokers, or the bootstrap addresses where those are of no use.

    KIP-899: the addresses of a cluster may all change while the client looks away; when the last known brokers are
    all unreachable, the bootstrap addresses lead back. KIP-1102: so they do when it is ``overdue``, that is when no
    broker has answered such a request for too long; then brokers come last, however healthy their connections look.
    """
    if not brokers:
        return bootstrap
    if overdue:
        return [*bootstrap, *(replace(node, failed=True) for node in brokers)]
    if all(node.failed for node in brokers):
        return [*bootstrap, *brokers]
    return brokers
