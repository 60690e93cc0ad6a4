"""AnyBroker: a request that any broker can answer, sent to one after the other until one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from itertools import islice
from math import inf
from random import Random
from typing import Any, Final, TypeAlias, TypeVar

from ...config import ClusterConfig
from ...core.backoff import retry_backoff
from ...core.cluster.home_cluster import OtherCluster
from ...core.connection.login_policy import is_refusal
from ...core.connection.useless_answers import UselessAnswers
from ...core.versions import api_name
from ...error_codes import ErrorCode
from ...errors import (
    AuthenticationFailed,
    BrokerError,
    CertificateRefused,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    NoBrokersAvailable,
    RequestTimedOut,
    UnsupportedVersion,
    fresh,
)
from ...wire import Request, Response
from ..connection import Connection
from ..login.endings import SessionEnded
from .node import Node, Purpose
from .nodes import Nodes

R = TypeVar("R", bound=Response)

# How long one broker is waited for that is not connected: so much of the time that is left, and at least so long.
_SHARE: Final = 0.25
_LEAST_SHARE_SECONDS: Final = 0.1
# An error says so of so many brokers: those that were asked first. A cluster may have hundreds.
_MOST_NAMED: Final = 20

#: Returns a usable connection, or the error of one attempt; the last argument is the deadline (loop time).
Reach: TypeAlias = Callable[[Node, Purpose, float], Coroutine[Any, Any, Connection | KafkaError]]
#: Returns why what the broker of that name has answered is of no use; None if it is of use.
Unusable: TypeAlias = Callable[[str, R], KafkaError | None]


class AnyBroker:
    """Asks the brokers that are least loaded first, and none twice before all were asked.

    A broker that hangs uses up request_timeout_ms at most, and one that can't be reached a quarter of the time that is
    left. Where none has answered for metadata_recovery_rebootstrap_trigger_ms, the bootstrap servers are asked, too;
    and at once where a broker answers that this is necessary (KIP-1102).
    """

    def __init__(
        self,
        config: ClusterConfig,
        nodes: Nodes,
        reach: Reach,
        check_open: Callable[[], None],
        warn: Callable[[object, KafkaError], None],
        random: Random,
    ) -> None:
        """``check_open`` raises if the client is closed. ``warn(kind, error)`` logs not too often of each kind."""
        self._config = config
        self._nodes = nodes
        self._random = random
        self._reach = reach
        self._check_open = check_open
        self._warn = warn
        self._unanswered_since: float | None = None
        self._answers: dict[type[Request[Any]], UselessAnswers] = {}

    async def ask(
        self,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        *,
        timeout: float,
        max_version: int | None = None,
        unusable: Unusable[R] | None = None,
        asks_others: bool = False,
        again: bool | None = None,
    ) -> R:
        """Return the answer of the first broker that answers the request that ``make(version)`` returns.

        Raises what Pool.any_broker raises, within ``timeout``. An answer for which ``unusable`` returns an error is a
        failure of that broker. UnsupportedVersion is raised at once, for the brokers of a cluster are mostly alike and
        the caller may have another way; with ``asks_others`` once each has been tried in vain.

        ``again``: whether the last answer to this question was of no use. After some such questions other brokers are
        asked first (UselessAnswers). None: a question by itself, which neither counts nor is counted.
        """
        deadline = _now() + timeout
        patience = self._config.request_timeout_ms / 1e3  # for each broker: one that hangs must not use up all the time
        errors: dict[Node, KafkaError] = {}
        tried: set[int] = set()
        awaited: set[Node] = set()  # without a connection so far: to be asked as soon as there is one
        pauses = retry_backoff(self._config, self._random)
        told = None if again is None else self._answers.setdefault(request_type, UselessAnswers())
        rather_not: Sequence[int] = () if told is None else told.next_question(_now(), again=bool(again))
        while (now := _now()) < deadline:
            node = self._least_loaded(tried, awaited, rather_not)
            if node is None:  # all were asked: ask again, unless no error is retriable
                if (final := self._final(errors)) is not None:
                    raise fresh(final)
                if not any(error.retriable for error in errors.values()):
                    break
                tried.clear()
                awaited.clear()
                continue
            try:
                response = await self._ask(node, request_type, make, deadline, max_version)
            except _NotYet as not_yet:
                errors.setdefault(node, not_yet.error)
                awaited.add(node)
                self._note_unanswered()
            except UnsupportedVersion as error:  # another broker may be newer, or behind no proxy
                self._check_open()
                if not asks_others:
                    raise
                errors[node] = error
                tried.add(node.broker.node_id)
            except (ConnectionFailed, RequestTimedOut, MalformedResponse, AuthenticationFailed) as error:
                if is_refusal(error):
                    raise
                self._check_open()
                was_cut_short = isinstance(error, RequestTimedOut) and deadline - now < patience
                self._failed(node, error)
                errors[node] = errors.get(node, error) if was_cut_short else error
                tried.add(node.broker.node_id)
            else:
                why = None if unusable is None else unusable(node.name, response)
                if why is None:
                    self._answered(node, told)
                    return response
                errors[node] = why
                tried.add(node.broker.node_id)
                now = self._answered_uselessly(node, why)
                await asyncio.sleep(min(pauses.next(), deadline - now))  # else nothing slows down the next question
        await asyncio.sleep(0)  # without time, no other task has run yet, and a caller may ask again at once
        within = f" within {max(0.0, timeout):.3g} s" if _now() >= deadline else ""  # else no broker will ever answer
        raise self._no_brokers(api_name(request_type), within, errors)

    def _final(self, errors: Mapping[Node, KafkaError]) -> KafkaError | None:
        """Return the error to raise now that all brokers were asked; None: ask again."""
        if not self._nodes.has_connected and (refused := _first(errors, CertificateRefused)) is not None:
            return refused
        return _first(errors, UnsupportedVersion)

    def _answered(self, node: Node, told: UselessAnswers | None) -> None:
        node.answered()
        self._unanswered_since = None
        if told is not None:
            told.answered_by(node.broker.node_id)

    def _failed(self, node: Node, error: KafkaError) -> float:
        """A broker has not answered, or not usably; return the time."""
        now = _now()
        node.failure(error, now)
        self._note_unanswered()
        if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._unanswered_since = -inf
        return now

    def _answered_uselessly(self, node: Node, why: KafkaError) -> float:
        """A broker's answer is not usable; return the time."""
        if isinstance(why, OtherCluster):
            node.disown()
            self._warn(node.address, why)
        return self._failed(node, why)

    def _note_unanswered(self) -> None:
        if self._unanswered_since is None:
            self._unanswered_since = _now()

    async def _ask(
        self,
        node: Node,
        request_type: type[Request[R]],
        make: Callable[[int], Request[R]],
        deadline: float,
        max_version: int | None,
    ) -> R:
        limit = min(deadline, _now() + self._config.request_timeout_ms / 1e3)

        async def once() -> R:
            connection = await self._connection(node, limit, deadline)
            version = connection.usable_version(request_type, max_version)
            return await connection.ask(make(version), version, limit)

        try:
            return await once()
        except SessionEnded:  # no failure of the broker, and each request may be sent twice
            return await once()

    async def _connection(self, node: Node, limit: float, deadline: float) -> Connection:
        """Return a connection to this broker. Raises _NotYet after its share of the time, and the error of an attempt.

        Of three servers one is silent: its host is dead, or a firewall drops what is sent. To wait for it for as long
        as an attempt may take would leave nothing for the other two, where the caller's time is no longer than that.
        The attempt goes on meanwhile: a broker that is only slow is asked as soon as it is connected.
        """
        now = _now()
        until = min(limit, now + max((deadline - now) * _SHARE, _LEAST_SHARE_SECONDS))
        purpose, _ = node.spare()
        outcome = await self._reach(node, purpose, until)
        if isinstance(outcome, Connection):
            return outcome
        if _now() >= until and not is_refusal(outcome):
            raise _NotYet(outcome)
        raise fresh(outcome)

    def _least_loaded(self, tried: set[int], awaited: Set[Node], rather_not: Sequence[int]) -> Node | None:
        tried = tried | {node.broker.node_id for node in awaited if node.spare()[1] is None}
        now = _now()
        trigger = self._config.metadata_recovery_rebootstrap_trigger_ms / 1e3
        overdue = self._unanswered_since is not None and now - self._unanswered_since >= trigger
        return self._nodes.least_loaded(tried, now=now, overdue=overdue, rather_not=rather_not)

    def _no_brokers(self, api: str, within: str, errors: Mapping[Node, KafkaError]) -> KafkaError:
        for error in errors.values():
            if isinstance(error, AuthenticationFailed) and error.retriable:
                return fresh(error)  # no broker was asked: what provides the credentials is down
        nodes = dict.fromkeys([*errors, *self._nodes.best_known])
        said = "; ".join(
            str(errors.get(node) or node.error or f"{node.name}: not reached") for node in islice(nodes, _MOST_NAMED)
        )
        if len(nodes) > _MOST_NAMED:
            said += f"; and {len(nodes) - _MOST_NAMED:,} more"
        failure = NoBrokersAvailable(f"no broker answered {api}{within}: {said}")
        failure.__cause__ = [*errors.values()][-1] if errors else None
        # What none of the servers speaks now, none will speak later, unless a broker has answered before.
        failure.retriable = self._nodes.has_connected or any(
            node not in errors or errors[node].retriable for node in nodes
        )
        return failure


class _NotYet(Exception):
    """There is no connection to a broker so far. That is no failure of it: the attempt goes on."""

    def __init__(self, error: KafkaError) -> None:
        self.error = error


def _first(errors: Mapping[Node, KafkaError], kind: type[KafkaError]) -> KafkaError | None:
    return next((error for error in errors.values() if isinstance(error, kind)), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
