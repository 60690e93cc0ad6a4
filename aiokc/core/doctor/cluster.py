"""What the metadata of the bootstrap servers mean: one cluster or several, its controller, its brokers' addresses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ...errors import KafkaError, RequestTimedOut
from ...types import address_text
from ..sasl.broker_text import broker_text
from .reaching import Endpoint
from .report import Finding, Step, Verdict, counted, duration

#: So many brokers are looked at, in the order of their ids.
MOST_BROKERS: Final = 100


@dataclass(frozen=True, slots=True)
class BrokerSeen:
    """A broker as the metadata name it."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSeen:
    """The cluster, as one bootstrap server describes it. ``count`` is the number of brokers that it names."""

    endpoint: Endpoint
    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, BrokerSeen]
    count: int
    seconds: float

    @property
    def is_complete(self) -> bool:
        """Whether ``brokers`` has all of them, and not the first MOST_BROKERS."""
        return self.count == len(self.brokers)

    @property
    def racks(self) -> list[str]:
        return sorted({broker_text(one.rack) for one in self.brokers.values() if one.rack})


def cluster_findings(seen: Sequence[ClusterSeen]) -> list[Finding]:
    """Return the findings about what the bootstrap servers answered to Metadata; at least one has."""
    first = seen[0]
    if not first.brokers:
        return [
            Finding(
                Step.METADATA,
                Verdict.PROBLEM,
                "metadata.no_brokers",
                first.endpoint.subject,
                "The metadata name no broker",
                "the cluster is starting, or the broker has lost its controllers: look at the log of both",
            )
        ]
    found = [_described(first)]
    ids = defaultdict(list)
    for one in seen:
        ids[one.cluster_id].append(one.endpoint.address)
    if len(ids) > 1:
        return [*found, _several_clusters(ids)]
    if first.controller_id < 0:
        text, advice = "The cluster has no controller now", "look at the logs of the controllers: is there a quorum?"
        subject = first.endpoint.subject
        found.append(Finding(Step.METADATA, Verdict.WARNING, "metadata.no_controller", subject, text, advice))
    return found


def no_metadata(endpoint: Endpoint, error: KafkaError) -> Finding:
    """Return the finding about a broker that was logged in to, and did not answer Metadata."""
    code = "metadata.timeout" if isinstance(error, RequestTimedOut) else "metadata.failed"
    advice = "look at the broker's log: it answers ApiVersions, and not Metadata"
    return Finding(Step.METADATA, Verdict.PROBLEM, code, endpoint.subject, str(error), advice)


def _several_clusters(ids: Mapping[str | None, Sequence[str]]) -> Finding:
    whose = "; ".join(f"{', '.join(addresses)}: {_shown(cluster_id)}" for cluster_id, addresses in ids.items())
    return Finding(
        Step.METADATA,
        Verdict.PROBLEM,
        "metadata.several_clusters",
        "bootstrap servers",
        f"The bootstrap servers belong to {len(ids)} clusters ({whose})",
        "name servers of one cluster in bootstrap_servers: the client goes on with whichever answers first",
        details={"cluster_ids": {_shown(cluster_id): list(addresses) for cluster_id, addresses in ids.items()}},
    )


def _described(seen: ClusterSeen) -> Finding:
    where = f" in {counted(len(seen.racks), 'rack')}" if seen.racks else ""
    text = (
        f"cluster {_shown(seen.cluster_id)}: {counted(seen.count, 'broker')}{where}, controller {seen.controller_id} "
        f"({duration(seen.seconds)})"
    )
    details = {
        "cluster_id": _shown(seen.cluster_id),
        "controller": seen.controller_id,
        "brokers": {str(one.node_id): broker_text(address_text(one.host, one.port)) for one in seen.brokers.values()},
        "racks": seen.racks,
    }
    return Finding(
        Step.METADATA,
        Verdict.OK,
        "metadata.answered",
        seen.endpoint.subject,
        text,
        seconds=seen.seconds,
        details=details,
    )


def listener_findings(seen: ClusterSeen) -> list[Finding]:
    """Return the findings about the advertised listeners that need no look at the network."""
    found = []
    shared = defaultdict(list)
    for one in seen.brokers.values():
        shared[one.host, one.port].append(one.node_id)
    for (host, port), nodes in shared.items():
        if len(nodes) > 1:
            where = address_text(host, port)
            named = " and ".join(map(str, sorted(nodes)[:10]))
            found.append(
                Finding(
                    Step.LISTENERS,
                    Verdict.PROBLEM,
                    "listeners.same_address",
                    f"brokers {named}",
                    f"Bootstrap works, brokers {named} all announce {where}: only one of them can be there, and it "
                    "refuses what it does not lead",
                    "change advertised.listeners: each broker needs an address of its own, behind a port forwarding or "
                    "load balancer too",
                )
            )
    if not seen.is_complete:
        text = f"{len(seen.brokers)} of {seen.count} brokers were looked at"
        found.append(Finding(Step.LISTENERS, Verdict.NOTE, "listeners.not_all", "brokers", text))
    return found


def listener_reached(endpoint: Endpoint, seconds: float | None) -> Finding:
    """Return the finding about a broker that answers at the address that it announces, as a part of the cluster.

    ``seconds`` is None for a bootstrap server, which was looked at before.
    """
    after = "as a bootstrap server" if seconds is None else f"after {duration(seconds)}"
    text = f"announces {endpoint.address}, and answers there, {after}"
    return Finding(Step.LISTENERS, Verdict.OK, "listeners.reached", endpoint.subject, text, seconds=seconds)


def other_cluster(endpoint: Endpoint, expected: str | None, met: str | None) -> Finding:
    """Return the finding about an announced address at which a broker of another cluster answers."""
    text = (
        f"Bootstrap works, broker {endpoint.node_id} announces {endpoint.address}, and there a broker of another "
        f"cluster answers: {_shown(met)} in the place of {_shown(expected)}"
    )
    advice = (
        "from here that address leads to another machine: change advertised.listeners, or map it by the option resolve"
    )
    return Finding(Step.LISTENERS, Verdict.PROBLEM, "listeners.other_cluster", endpoint.subject, text, advice)


def listener_failed(endpoint: Endpoint, found: Finding) -> Finding:
    """Return a finding about a login or the metadata at a broker as one about its listener."""
    text = f"Bootstrap works; at {endpoint.address}, which broker {endpoint.node_id} announces: {found.text}"
    return replace(found, step=Step.LISTENERS, text=text)


def _shown(cluster_id: str | None) -> str:
    return "without an id" if cluster_id is None else broker_text(cluster_id)
