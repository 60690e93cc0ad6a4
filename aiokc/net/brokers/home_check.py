"""Whether a new connection leads to the client's own cluster: asked before anything else is sent over it."""

from __future__ import annotations

from contextlib import suppress

from ...core.cluster.home_cluster import ASKED_FROM, HomeCluster, whose_question
from ...errors import ConnectionFailed, RequestTimedOut, UnsupportedVersion
from ...wire.messages.discovery import MetadataRequest
from ..connection import Connection
from .node import Node


async def check_home(connection: Connection, node: Node, home: HomeCluster) -> None:
    """Close the connection, and raise KafkaError, where it leads to another cluster, or ends before that is known.

    As for the attempt to connect that it belongs to, nothing was sent that a caller may have asked for. So where no
    answer comes in time, this is a ConnectionFailed: a caller takes RequestTimedOut for its own request's.
    """
    if not _is_to_be_checked(node, home):
        return
    try:
        with suppress(UnsupportedVersion):
            version = connection.usable_version(MetadataRequest)
            if version >= ASKED_FROM:
                answer = await connection.request(whose_question(), timeout=node.setup_timeout)
                if (error := home.why_foreign(connection.name, answer.cluster_id)) is not None:
                    node.route = None  # the name is looked up anew, and no address of it preferred
                    raise error
        if connection.closed:  # while this task was about to go on: the pool would keep it for ever
            raise connection.error or ConnectionFailed(f"{connection.name} closed the connection right after the check")
    except RequestTimedOut as error:
        connection.close()
        raise ConnectionFailed(f"{error}: it does not say to which cluster it belongs") from error
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

    A connection that is open tells that the broker is there, but not if another one has just failed: the broker may be
    gone without a word, and the idle connection to it half open.
    """
    may_have_moved = node.broker.node_id < 0 or node.traffic.connects > 0
    return home.cluster_id is not None and may_have_moved and (node.failed or not node.is_connected)
