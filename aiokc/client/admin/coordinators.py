"""Asks the coordinators of many groups at once: looks them up, sends each its part, and tries again what has moved."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias, TypeVar

import anyio

from ...core.cluster.coordinators import KeyType, coordinator_request, coordinators_of, refusal
from ...errors import BrokerError, KafkaError, broker_error
from ...types import Broker
from ...wire.messages.discovery import Coordinator, FindCoordinatorRequest
from .asking import Asking, checked_answers, leaves_open, passes

_KEYS_AT_ONCE: Final = 1000

#: The most groups of one request: their answers are large, and neither side is to be held up by one.
GROUPS_AT_ONCE: Final = 100

K = TypeVar("K")
T = TypeVar("T")

#: Sends one coordinator the request for these groups, and returns what it answers for each.
AskForGroups: TypeAlias = Callable[[int, Sequence[str]], Awaitable[Mapping[str, T | KafkaError]]]


async def ask_coordinators(
    asking: Asking,
    group_ids: Iterable[str],
    ask: AskForGroups[T],
    *,
    unsure: set[str] | None = None,
) -> dict[str, T | KafkaError]:
    """Return what the coordinators answer for these groups, in their order, or an error for each that has none.

    What passes is tried again until the deadline, then the error is RequestTimedOut. ``unsure`` takes the groups
    of which a request may have been carried out without success: no answer came, or one that leaves it open.
    """
    wanted = list(dict.fromkeys(group_ids))
    found: dict[str, T | KafkaError] = {}
    left = wanted
    while left:
        by_node, answers = await _find(asking, left)
        found.update(answers)
        await _ask_all(asking, by_node, ask, found, unsure)
        left = [group_id for group_id in left if passes(found[group_id])]
        if left and not await asking.may_try_again():
            for group_id in left:
                cause = found[group_id]
                assert isinstance(cause, KafkaError)  # it passes
                found[group_id] = asking.too_late(f"group {group_id!r}", cause)
            break
    return {group_id: found[group_id] for group_id in wanted}


async def ask_coordinator(
    asking: Asking,
    group_id: str,
    items: Sequence[K],
    ask: Callable[[int], Awaitable[Mapping[K, int]]],
    *,
    unsure: set[str] | None = None,
) -> dict[K, int | KafkaError]:
    """Return the error code of each of these items of one group, or the same error for all of them.

    ``ask`` sends the coordinator one request for all items, and returns their codes. If one of these passes, all items
    are asked for again: so asking twice must do no harm. ``unsure`` takes the group where an attempt may have been
    carried out all the same.
    """

    async def for_group(node_id: int, groups: Sequence[str]) -> dict[str, Mapping[K, int] | KafkaError]:
        codes = await ask(node_id)
        passing = [error for error in map(broker_error, codes.values()) if passes(error)]
        return {group_id: max(passing, key=leaves_open) if passing else codes}

    if not items:
        return {}
    found = (await ask_coordinators(asking, [group_id], for_group, unsure=unsure))[group_id]
    return dict.fromkeys(items, found) if isinstance(found, KafkaError) else {one: found[one] for one in items}


def behind_doubt(results: Mapping[K, KafkaError | None]) -> dict[K, KafkaError | None]:
    """Return the results of a change that an earlier attempt may have made: no answer said whether it did.

    What refuses the next attempt, such as a member that has joined meanwhile, does not prove that nothing was changed.
    So its BrokerError is only the cause.
    """
    return {one: _unsure(error) if isinstance(error, BrokerError) else error for one, error in results.items()}


def _unsure(refusal: BrokerError) -> KafkaError:
    error = KafkaError(f"an earlier attempt may have been carried out; the last one was refused: {refusal}")
    error.__cause__ = refusal
    return error


async def _ask_all(
    asking: Asking,
    by_node: Mapping[int, Sequence[str]],
    ask: AskForGroups[T],
    found: dict[str, T | KafkaError],
    unsure: set[str] | None,
) -> None:
    async def ask_one(node_id: int, groups: Sequence[str]) -> None:
        for begin in range(0, len(groups), GROUPS_AT_ONCE):
            portion = groups[begin : begin + GROUPS_AT_ONCE]
            try:
                await asking.reach(node_id)
            except KafkaError as error:  # nothing was sent, so nothing was changed
                found.update(dict.fromkeys(portion, error))
                continue
            try:
                answers = checked_answers(await ask(node_id, portion), portion, f"broker {node_id}")
            except KafkaError as error:
                answers = dict.fromkeys(portion, error)
            found.update(answers)
            if unsure is not None:
                unsure.update(group_id for group_id, answer in answers.items() if leaves_open(answer))

    async with anyio.create_task_group() as tasks:
        for node_id, groups in by_node.items():
            tasks.start_soon(ask_one, node_id, groups)


async def _find(asking: Asking, group_ids: Sequence[str]) -> tuple[dict[int, list[str]], dict[str, KafkaError]]:
    """Return the groups by coordinator, and the errors of those that have none. One attempt for each."""
    by_node: dict[int, list[str]] = {}
    errors: dict[str, KafkaError] = {}
    rest = list(group_ids)
    while rest:
        try:
            answers = await _look_up(asking, rest[:_KEYS_AT_ONCE])
        except KafkaError as error:
            return by_node, errors | dict.fromkeys(rest, error)
        for group_id, one in answers.items():
            if isinstance(one, KafkaError):
                errors[group_id] = one
            elif refused := refusal(KeyType.GROUP, one):
                errors[group_id] = refused
            else:
                asking.cluster_client.pool.introduce(Broker(one.node_id, one.host, one.port))
                by_node.setdefault(one.node_id, []).append(group_id)
        rest = rest[len(answers) :]
    return by_node, errors


async def _look_up(asking: Asking, group_ids: Sequence[str]) -> dict[str, Coordinator | KafkaError]:
    """Ask for the coordinators of these groups; before version 4 for that of the first one alone."""
    asked = coordinator_request(KeyType.GROUP, group_ids, 0)

    def make(version: int) -> FindCoordinatorRequest:
        nonlocal asked
        asked = coordinator_request(KeyType.GROUP, group_ids, version)
        return asked

    response = await asking.any_broker(FindCoordinatorRequest, make)
    return checked_answers(coordinators_of(asked, response), asked.coordinator_keys or [asked.key], "FindCoordinator")
