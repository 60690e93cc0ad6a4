"""Looks at the cluster behind the bootstrap servers: its metadata, and every listener that its brokers announce."""

from __future__ import annotations

from functools import partial
from typing import Final

from ...core.doctor.cluster import (
    BrokerSeen,
    ClusterSeen,
    cluster_findings,
    listener_failed,
    listener_findings,
    listener_reached,
    other_cluster,
)
from ...core.doctor.reaching import Endpoint, is_local
from ...core.doctor.report import Finding, Step, Verdict, at_step, milder
from ...net.connection import Connection
from .kit import Kit, together
from .listener import Looked, look_at
from .login import Entered, enter, enter_again, refuses_credentials

# Seconds before the end of a session in which no request is begun.
_NEARLY: Final = 1.0


class Reached:
    """The cluster, and a connection to each of its brokers that was reached."""

    def __init__(self, kit: Kit, seen: ClusterSeen, connections: dict[int, Connection]) -> None:
        self.seen = seen
        self._kit = kit
        self._connections = connections

    def has(self, node_id: int) -> bool:
        """Whether this broker was reached."""
        return node_id in self._connections

    async def connection(self, node_id: int | None = None) -> Connection:
        """Return a connection to a broker that was reached (None: to any). Raises KafkaError.

        Where the SASL session of the one that there was is over, or nearly so, it logs in again.
        """
        chosen = next(iter(self._connections)) if node_id is None else node_id
        connection = self._connections[chosen]
        if connection.usable and self._kit.now() + _NEARLY < connection.admits_until:
            return connection
        assert connection.route is not None, "it was open"
        endpoint = _endpoint(self.seen.brokers[chosen], False)
        self._connections[chosen] = connection = await enter_again(self._kit, endpoint, connection.route.address)
        return connection


async def look_at_bootstrap(kit: Kit) -> tuple[list[Looked], list[Finding]]:
    """Look at all bootstrap servers. Where one of them works, what is wrong with the others is a warning."""
    endpoints = [Endpoint(host=host, port=port) for host, port in dict.fromkeys(kit.config.addresses)]
    looked = await together([partial(look_at, kit, endpoint) for endpoint in endpoints])
    works = any(one.target is not None for one in looked)
    findings = [milder(found) if works else found for one in looked for found in one.findings]
    return [one for one in looked if one.target is not None], findings


async def look_at_cluster(kit: Kit, servers: list[Looked]) -> tuple[list[Entered], list[Finding]]:
    """Log in at each of the bootstrap servers that answer, and compare what they say of the cluster.

    Where one refuses the credentials, no other one is asked. The refusal is a problem even where another one has
    accepted them, so that the examination ends: each later step logs in at brokers, the one that has refused among
    them.
    """
    entered: list[Entered] = []
    for looked in servers:
        entered.append(await enter(kit, looked))
        if refuses_credentials(entered[-1].findings):
            break
    works = [one for one in entered if one.seen is not None]
    findings = [found for one in entered for found in one.findings]
    if works:
        findings = [found if refuses_credentials([found]) else milder(found) for found in findings]
        findings += cluster_findings([one.seen for one in works if one.seen is not None])
    return works, findings


async def look_at_listeners(
    kit: Kit, servers: list[Looked], entered: list[Entered], seen: ClusterSeen
) -> tuple[Reached, list[Finding]]:
    """Look at every listener that the brokers announce, from its name to the metadata that it answers with.

    ``entered``: the bootstrap servers that work. Those that brokers announce need no second look.
    """
    bootstrap_is_local = any(is_local([host for host, _ in one.addresses]) for one in servers)
    known = {one.seen.endpoint.address: one.connection for one in entered if one.seen and one.connection}
    brokers: dict[tuple[str, int], Endpoint] = {}
    for one in seen.brokers.values():  # brokers at one address are one broker: the finding about them says so
        brokers.setdefault((one.host, one.port), _endpoint(one, bootstrap_is_local))
    unknown = [endpoint for endpoint in brokers.values() if endpoint.address not in known]
    started = kit.now()
    looked = await together([partial(look_at, kit, endpoint) for endpoint in unknown])
    seconds = kit.now() - started
    by_address = {one.endpoint.address: one for one in looked}
    findings = listener_findings(seen)
    connections: dict[int, Connection] = {}
    # One login after the other: where a broker refuses the credentials, no other one is asked.
    for endpoint in brokers.values():
        connection = known.get(endpoint.address)
        found = [listener_reached(endpoint, None)]
        if connection is None:
            connection, found = await _enter_listener(kit, by_address[endpoint.address], seen, seconds)
        else:
            connection.rename(endpoint.subject)
        findings += found
        if connection is not None and endpoint.node_id is not None:
            connections[endpoint.node_id] = connection
        if refuses_credentials(found):
            break
    return Reached(kit, seen, connections), findings


async def _enter_listener(
    kit: Kit, looked: Looked, seen: ClusterSeen, seconds: float
) -> tuple[Connection | None, list[Finding]]:
    """Log in at one broker, if it answers, and see whether it belongs to the cluster."""
    endpoint = looked.endpoint
    ill = [at_step(Step.LISTENERS, found) for found in looked.findings if found.is_illness]
    if looked.target is None:
        return None, ill
    started = kit.now()
    entered = await enter(kit, looked)
    if entered.seen is None:
        problems = [found for found in entered.findings if found.verdict is Verdict.PROBLEM]
        return None, [*ill, *(listener_failed(endpoint, found) for found in problems)]
    if entered.seen.cluster_id != seen.cluster_id:
        return None, [*ill, other_cluster(endpoint, seen.cluster_id, entered.seen.cluster_id)]
    return entered.connection, ill or [listener_reached(endpoint, seconds + kit.now() - started)]


def name_of(seen: ClusterSeen, node_id: int) -> str:
    """Return the name of a broker in findings."""
    broker = seen.brokers.get(node_id)
    return f"broker {node_id}" if broker is None else _endpoint(broker, False).subject


def _endpoint(broker: BrokerSeen, bootstrap_is_local: bool) -> Endpoint:
    return Endpoint(host=broker.host, port=broker.port, node_id=broker.node_id, bootstrap_is_local=bootstrap_is_local)
