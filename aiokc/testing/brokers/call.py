"""One request, as its handler sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...wire import Request
from .cluster_state import BrokerNode, ClusterState

Q = TypeVar("Q", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Call(Generic[Q]):
    """A request, who sent it, the broker that it reached, and the cluster of that broker."""

    request: Q
    version: int
    client_id: str
    client_host: str
    node: BrokerNode
    cluster: ClusterState
