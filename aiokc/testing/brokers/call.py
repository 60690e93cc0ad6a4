"""``Call``: what an API's handler gets: the decoded request, its client, the broker and the cluster."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from ...wire import Request
from ..security.authorizer import Operation, ResourceType
from ..security.sasl.authenticator import Authenticator
from .cluster_state import BrokerNode, ClusterState, Endpoint

Q = TypeVar("Q", bound=Request[Any])


@dataclass(frozen=True, slots=True)
class Call(Generic[Q]):
    """A request, the client that sent it, the broker that received it, and the cluster of that broker.

    ``listener`` is the name of the broker's listener, ``authenticator`` knows the user of the connection, and ``lost``
    is done once that has ended, so that no answer can be sent any more.
    """

    request: Q
    version: int
    client_id: str
    client_host: str
    node: BrokerNode
    cluster: ClusterState
    listener: str
    authenticator: Authenticator
    lost: asyncio.Future[None]

    @property
    def user(self) -> str:
        """The user that sent the request; "ANONYMOUS" where the connection has no authentication."""
        return self.authenticator.user

    def endpoint_of(self, node: BrokerNode) -> Endpoint:
        """Return the address that a broker advertises to clients of this listener."""
        return node.endpoints[self.listener]

    def endpoints(self) -> list[tuple[BrokerNode, Endpoint]]:
        """Return all brokers that are alive, with the address that each advertises to clients of this listener."""
        return [(node, self.endpoint_of(node)) for node in self.cluster.nodes.values() if node.alive]

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the user may do this."""
        return self.cluster.security.acls.allows(self.user, operation, kind, name)
