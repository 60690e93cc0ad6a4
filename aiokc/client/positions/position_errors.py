"""Keeps the errors that leave partitions without a position: to log those that may pass, and to raise the others."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeAlias

from ...core.subscription.state import Subscription
from ...errors import BrokerError, KafkaError, NoOffsetForPartition
from ...types import TopicPartition, named
from ..aio.complaints import Complaints
from ..aio.signal import Signal

logger = logging.getLogger("aiokc.offsets")

#: Partitions without a position, each with its token.
PositionTokens = dict[TopicPartition, int]

#: How many positions are set before other tasks get to run.
SET_AT_ONCE: Final = 250

_Kind: TypeAlias = tuple[type[KafkaError], int]


class PositionErrors:
    """The errors of all partitions without a position. An error counts as long as the tokens are those it came for.

    ``found`` is notified when there is one for the application's next call.
    """

    def __init__(self, subscription: Subscription, found: Signal) -> None:
        self._subscription = subscription
        self._found = found
        self._kept: dict[_Kind, tuple[KafkaError, PositionTokens]] = {}  # the newest of each kind
        self._passing: dict[_Kind, tuple[KafkaError, PositionTokens]] = {}  # the same of those that may pass
        self._complaints = Complaints(logger)

    def report(self, error: KafkaError, tokens: PositionTokens, *, retriable: bool) -> None:
        """These partitions have no position because of ``error``. ``retriable``: it may pass by itself."""
        if retriable:
            self._passing.pop(_kind(error), None)  # the newest is the last one
            self._passing[_kind(error)] = error, tokens
            self._complaints.warn(type(error).__name__, "no position yet for %s: %s", named(tokens), error)
        else:
            self._kept[_kind(error)] = error, tokens
            self._found.notify()

    def passing(self, of: Collection[TopicPartition]) -> KafkaError | None:
        """Return an error that may pass, and leaves some of these without a position; None: none is known.

        It is of the newest kind. Of each kind the newest is known, which may be one of other partitions.
        """
        for error, tokens in reversed(self._passing.values()):
            if any(tp in tokens and self._subscription.get(tp, tokens[tp]) is not None for tp in of):
                return error
        return None

    def take(self, of: Collection[TopicPartition] | None = None, *, of_blocked: bool) -> KafkaError | None:
        """Return, once, an error that leaves partitions without a position; None if a seek has given them one since.

        With ``of``, it is one that leaves some of these without. Without ``of_blocked``, a missing offset is no error
        yet for a blocked partition: the listener is being called for it, and may seek.
        """
        for kind in list(self._kept):
            if (error := self._take(kind, None if of is None else frozenset(of), of_blocked)) is not None:
                return error
        return None

    def _take(self, kind: _Kind, of: frozenset[TopicPartition] | None, of_blocked: bool) -> KafkaError | None:
        error, tokens = self._kept.pop(kind)
        left = only(tokens, [tp for tp, token in tokens.items() if self._subscription.get(tp, token) is not None])
        due = {tp for tp in left if of is None or tp in of}
        if isinstance(error, NoOffsetForPartition):
            due = {tp for tp in due if of_blocked or not self._subscription[tp].blocked}
            if rest := left.keys() - due:
                self._kept[kind] = error, only(left, rest)
            return NoOffsetForPartition(due) if due else None
        if left and not due:
            self._kept[kind] = error, left
        return error if due else None


def only(tokens: PositionTokens, partitions: Iterable[TopicPartition]) -> PositionTokens:
    return {tp: tokens[tp] for tp in partitions}


def _kind(error: KafkaError) -> _Kind:
    return type(error), error.code if isinstance(error, BrokerError) else 0


def by_kind(
    errors: Mapping[TopicPartition, KafkaError], partitions: Iterable[TopicPartition]
) -> Iterable[tuple[KafkaError, list[TopicPartition]]]:
    """Return one error of each kind, with those of ``partitions`` that have one of that kind."""
    found: dict[_Kind, tuple[KafkaError, list[TopicPartition]]] = {}
    for tp in partitions:
        if (error := errors.get(tp)) is not None:
            found.setdefault(_kind(error), (error, []))[1].append(tp)
    return found.values()
