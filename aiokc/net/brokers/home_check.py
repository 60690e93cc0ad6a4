"""Whether a new connection leads to the client's own cluster: asked before anything else is sent over it."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ...core.connection.home_cluster import HomeCluster
from ...errors import UnsupportedVersion
from ...wire.messages.discovery import MetadataRequest
from ..connection import Connection
from .node import Node

_FROM: Final = 1  # in v0 an empty list of topics means all of them


async def check_home(connection: Connection, node: Node, home: HomeCluster) -> None:
    """Close the connection, and raise KafkaError, where it leads to another cluster, or ends before that is known."""
    if not _is_to_be_checked(node, home):
        return
    try:
        with suppress(UnsupportedVersion):
            version = connection.usable_version(MetadataRequest)
            if version >= _FROM:
                request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
                answer = await connection.request(request, timeout=node.setup_timeout)
                if (error := home.why_foreign(connection.name, answer.cluster_id)) is not None:
                    node.route = None  # the name is looked up anew, and no address of it preferred
                    raise error
    except BaseException:
        connection.close()
        raise


def _is_to_be_checked(node: Node, home: HomeCluster) -> bool:
    """Whether what a new connection to this node reaches may have become another cluster's broker.

    A broker that the metadata have just named is where they say. One that was connected to before, and is no longer,
    may have lost its address meanwhile; so may a bootstrap server, once the cluster is known. A member of a group would
    join the other cluster's group, find no committed offset there, and begin anew:

    1. The broker dies. Another cluster's broker gets its address, before any metadata are refreshed.
    2. The member connects again, is not known there, and joins. Its partitions have no committed offset.
    3. The broker comes back, and the member reads from the beginning, and commits that.
    """
    may_have_moved = node.broker.node_id < 0 or node.traffic.connects > 0
    return home.cluster_id is not None and may_have_moved and not node.is_connected
