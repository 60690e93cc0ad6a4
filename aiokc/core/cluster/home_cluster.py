"""HomeCluster: the one cluster that a client talks to for its whole life, and why another one's answer is none."""

from __future__ import annotations

from typing import Final

from ...errors import ConnectionFailed, KafkaError
from ...wire.messages.discovery import MetadataRequest, MetadataResponse
from ..sasl.broker_text import broker_text
from .snapshot import known_cluster_id, why_unusable

#: The first version of Metadata that asks a broker for its cluster alone. In v0 no topics means all of them.
ASKED_FROM: Final = 1


def whose_question() -> MetadataRequest:
    """Return what to ask a broker whose cluster is in doubt."""
    return MetadataRequest(topics=[], allow_auto_topic_creation=False)


class HomeCluster:
    """``cluster_id`` is that of the first answer that names one; None until then.

    An address may lead to another cluster later: a host's address is given away, a name moves to a mirror. That cluster
    may have topics of the same names, whose offsets mean other records. So nothing that it answers counts. Where either
    id is not known, nothing is compared: old brokers and foreign ones may name none.
    """

    def __init__(self) -> None:
        self.cluster_id: str | None = None

    def why_foreign(self, broker: str, cluster_id: str | None) -> KafkaError | None:
        """Return the error of the broker of that name if it belongs to another cluster."""
        told = known_cluster_id(cluster_id)
        if told is None or self.cluster_id is None or told == self.cluster_id:
            return None
        return OtherCluster(
            f"{broker} belongs to cluster {broker_text(told)} now, and this client to cluster "
            f"{broker_text(self.cluster_id)}: correct the address, or restart the client to go over to another cluster"
        )

    def why_unusable(self, broker: str, response: MetadataResponse) -> KafkaError | None:
        """Return why a broker's answer tells nothing of this cluster; None if it does, and then take its id over."""
        error = self.why_foreign(broker, response.cluster_id) or why_unusable(broker, response)
        if error is None:
            self.cluster_id = self.cluster_id or known_cluster_id(response.cluster_id)
        return error


class OtherCluster(ConnectionFailed):
    """The address of a broker leads to another cluster. It passes when the address leads home again."""
