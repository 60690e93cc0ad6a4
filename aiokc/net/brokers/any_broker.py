"""AnyBroker: a request that any broker can answer, sent to one after the other until one does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from math import inf
from random import Random
from typing import Any, TypeAlias, TypeVar

from ...config import ClusterConfig
from ...core.backoff import retry_backoff
from ...core.connection.login_policy import is_refusal
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
    fresh,
)
from ...wire import Request, Response
from ..connection import Connection
from ..login.endings import SessionEnded
from .node import Node, Purpose
from .nodes import Nodes

R = TypeVar("R", bound=Response)

#: Returns a usable connection, or the error of one attempt; the last argument is the deadline (loop time).
Reach: TypeAlias = Callable[[Node, Purpose, float], Coroutine[Any, Any, Connection | KafkaError]]
#: Returns why what the broker of that name has answered is of no use; None if it is of use.
Unusable: TypeAlias = Callable[[str, R], KafkaError | None]


class AnyBroker:
    """Asks the brokers that are least loaded first, and none twice before all were asked.

    A broker that fails or hangs uses up request_timeout_ms at most. Where none has answered for
    metadata_recovery_rebootstrap_trigger_ms, the bootstrap servers are asked, too; and at once where a broker answers
    that this is necessary (KIP-1102).
    """

    def __init__(
        self, config: ClusterConfig, nodes: Nodes, reach: Reach, check_open: Callable[[], None], random: Random
    ) -> None:
        """``check_open`` raises if the client is closed."""
        self._config = config
        self._nodes = nodes
        self._random = random
        self._reach = reach
        self._check_open = check_open
        self._unanswered_since: float | None = None

    async def ask(
        self,
        request: Request[R],
        *,
        timeout: float,
        max_version: int | None = None,
        unusable: Unusable[R] | None = None,
    ) -> R:
        """Return the answer of the first broker that answers. Raises what Pool.request raises, within ``timeout``.

        An answer for which ``unusable`` returns an error is a failure of that broker.
        """
        deadline = _now() + timeout
        patience = self._config.request_timeout_ms / 1e3  # for each broker: one that hangs must not use up all the time
        errors: dict[Node, KafkaError] = {}
        tried: set[int] = set()
        pauses = retry_backoff(self._config, self._random)
        while (now := _now()) < deadline:
            node = self._least_loaded(tried)
            if node is None:  # all were asked: ask again, unless no error is retriable
                if not self._nodes.has_connected and (refused := _certificate_refused(errors)) is not None:
                    raise fresh(refused)
                if not any(error.retriable for error in errors.values()):
                    break
                tried.clear()
                continue
            try:
                response = await self._ask(node, request, min(deadline, now + patience), max_version)
            except (ConnectionFailed, RequestTimedOut, MalformedResponse, AuthenticationFailed) as error:
                if is_refusal(error):
                    raise
                self._check_open()
                was_cut_short = isinstance(error, RequestTimedOut) and deadline - now < patience
                now = self._failed(node, error)
                errors[node] = errors.get(node, error) if was_cut_short else error
                tried.add(node.broker.node_id)
            else:
                why = None if unusable is None else unusable(node.name, response)
                if why is None:
                    node.answered()
                    self._unanswered_since = None
                    return response
                errors[node] = why
                tried.add(node.broker.node_id)
                now = self._failed(node, why)
                await asyncio.sleep(min(pauses.next(), deadline - now))  # else nothing slows down the next question
        within = f" within {timeout:.3g} s" if now >= deadline else ""  # else no broker will ever answer
        raise self._no_brokers(api_name(type(request)), within, errors)

    def _failed(self, node: Node, error: KafkaError) -> float:
        """A broker has not answered, or not usably; return the time."""
        now = _now()
        node.failure(error, now)
        if isinstance(error, BrokerError) and error.code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._unanswered_since = -inf
        elif self._unanswered_since is None:
            self._unanswered_since = now
        return now

    async def _ask(self, node: Node, request: Request[R], deadline: float, max_version: int | None) -> R:
        for is_last in (False, True):
            purpose, _ = node.spare()
            outcome = await self._reach(node, purpose, deadline)
            if not isinstance(outcome, Connection):
                raise fresh(outcome)
            try:
                return await outcome.request(request, timeout=deadline - _now(), max_version=max_version)
            except SessionEnded:  # no failure of the broker, and each request may be sent twice
                if is_last:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _least_loaded(self, tried: set[int]) -> Node | None:
        now = _now()
        trigger = self._config.metadata_recovery_rebootstrap_trigger_ms / 1e3
        overdue = self._unanswered_since is not None and now - self._unanswered_since >= trigger
        return self._nodes.least_loaded(tried, now=now, overdue=overdue)

    def _no_brokers(self, api: str, within: str, errors: Mapping[Node, KafkaError]) -> KafkaError:
        for error in errors.values():
            if isinstance(error, AuthenticationFailed) and error.retriable:
                return fresh(error)  # no broker was asked: what provides the credentials is down
        nodes = dict.fromkeys([*errors, *self._nodes.best_known])
        said = "; ".join(str(errors.get(node) or node.error or f"{node.name}: not reached") for node in nodes)
        failure = NoBrokersAvailable(f"no broker answered {api}{within}: {said}")
        failure.__cause__ = [*errors.values()][-1] if errors else None
        # What none of the servers speaks now, none will speak later, unless a broker has answered before.
        failure.retriable = self._nodes.has_connected or any(
            node not in errors or errors[node].retriable for node in nodes
        )
        return failure


def _certificate_refused(errors: Mapping[Node, KafkaError]) -> CertificateRefused | None:
    return next((error for error in errors.values() if isinstance(error, CertificateRefused)), None)


def _now() -> float:
    return asyncio.get_running_loop().time()
