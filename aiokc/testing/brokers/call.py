"""``Call``: what an API's handler gets: the decoded request, its client, the broker and the cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...wire import Request
from .cluster_state import BrokerNode, ClusterState

Q = TypeVar("Q", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Call(Generic[Q]):
    """A request, the client that sent it, the broker that received it, and the cluster of that broker."""

    request: Q
    version: int
    client_id: str
    client_host: str
    node: BrokerNode
    cluster: ClusterState
