"""Which broker to ask when any of them will do (Kafka's least-loaded node), and when to ask bootstrap addresses."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the choice of a broker depends on. Times in seconds, on the caller's clock.

    ``failed``: the newest attempt to use the broker failed, not long ago or for the same request; the client tries
    again at ``retry_at`` at the earliest. ``doubtful``: it failed, and nothing has used the broker since.
    ``muted_until``: the broker throttles this client until then (KIP-219).
    """

    node_id: int
    connected: bool = False
    connecting: bool = False
    in_flight: int = 0
    muted_until: float = 0.0
    retry_at: float = 0.0
    failed: bool = False
    doubtful: bool = False


def least_loaded(
    nodes: Sequence[NodeView], tried: Set[int], *, now: float, rather_not: Sequence[int] = ()
) -> int | None:
    """Return the id of the node to ask next, or None if all of them were tried.

    The order is: connected, connecting, not connected, those to ask ``rather_not``, throttled, failed. Among
    equals the node with the fewest requests in flight comes first, then the one that may be used soonest, then one that
    is not doubtful, then the first of ``nodes``. Those in ``rather_not`` come in the order that they have there,
    doubtful or not: of two brokers the other one may be cut off, and the doubtful one have been restarted.
    """

    def rank(node: NodeView) -> tuple[int, int, float]:
        if node.failed:
            return 5, 0, node.retry_at
        if node.muted_until > now:
            return 4, node.in_flight, node.muted_until
        if node.node_id in rather_not:
            return 3, rather_not.index(node.node_id), 0.0
        return (0 if node.connected else 1 if node.connecting else 2), node.in_flight, float(node.doubtful)

    fresh = [node for node in nodes if node.node_id not in tried]
    return min(fresh, key=rank).node_id if fresh else None


def candidates(brokers: Sequence[NodeView], bootstrap: Sequence[NodeView], *, overdue: bool) -> Sequence[NodeView]:
    """Return the nodes to choose from: the known brokers, or the bootstrap addresses first where those are of no use.

    KIP-899: all addresses of a cluster may change while the client does not look. So when all known brokers have
    failed, the bootstrap addresses lead back to the cluster. KIP-1102: they also do when it is ``overdue``, that is
    when no broker has answered such a request (one that any broker can answer) for too long. Then the known brokers
    come last, however healthy their connections look.
    """
    if not brokers:
        return bootstrap
    if overdue:
        return [*bootstrap, *(replace(node, failed=True) for node in brokers)]
    if all(node.failed for node in brokers):
        return [*bootstrap, *brokers]
    return brokers
