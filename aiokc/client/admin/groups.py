"""Lists groups, describes them in whichever protocol they have, reads their offsets, and deletes what is theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from ...admin import GroupListing, PartialListing
from ...core.admin.group_answers import (
    Described,
    described_classic_groups,
    described_consumer_groups,
    described_share_groups,
    is_not_found,
    is_undescribed,
    listed_groups,
)
from ...core.admin.offset_answers import (
    MANY_GROUPS,
    MANY_MEMBERS,
    Leaving,
    Offsets,
    all_offsets,
    all_offsets_request,
    delete_offsets_request,
    deleted_groups,
    deleted_offsets,
    leave_request,
    left_members,
)
from ...core.offsets.messages import TOPIC_IDS
from ...error_codes import ErrorCode
from ...errors import KafkaError, UnsupportedVersion, broker_error
from ...types import TopicPartition
from ...wire.messages.group import LeaveGroupRequest
from ...wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
)
from ...wire.messages.group_description import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from ...wire.messages.offsets import OffsetFetchRequest, OffsetFetchResponse
from .asking import Asking, always, passes
from .coordinators import ask_coordinator, ask_coordinators, behind_doubt

_STATES: Final = 4  # the version of ListGroups that selects by state (KIP-518), Kafka 2.6
_TYPES: Final = 5  # and by type (KIP-848), Kafka 3.8
_OPERATIONS: Final = 3  # the version of DescribeGroups that tells authorized operations (KIP-430)


async def list_groups(asking: Asking, states: Collection[str], types: Collection[str]) -> list[GroupListing]:
    async def ask(node_id: int) -> list[GroupListing]:
        def make(version: int) -> ListGroupsRequest:
            for given, since, what, release in ((states, _STATES, "states", "2.6"), (types, _TYPES, "types", "3.8")):
                if given and version < since:
                    raise UnsupportedVersion(
                        f"broker {node_id} cannot select groups by {what}: that needs Kafka {release}, and it speaks "
                        f"ListGroups v{version}"
                    )
            return ListGroupsRequest(states_filter=list(states), types_filter=list(types))

        response = await asking.broker(node_id, ListGroupsRequest, make)
        if response.error_code != ErrorCode.NONE:
            raise broker_error(response.error_code, f"groups of broker {node_id}")
        return await asking.read(lambda: listed_groups(response, node_id), len(response.groups))

    answers = await asking.each_broker(None, ask)
    errors = {node_id: found for node_id, found in answers.items() if isinstance(found, KafkaError)}
    for error in errors.values():
        if isinstance(error, UnsupportedVersion):
            raise error
    # A group that moves meanwhile may be in two lists.
    groups = {one.group_id: one for found in answers.values() if not isinstance(found, KafkaError) for one in found}
    listed = sorted(groups.values(), key=lambda one: one.group_id)
    if errors:
        raise PartialListing(listed, errors)
    return listed


async def describe_groups(asking: Asking, group_ids: Collection[str]) -> Described:
    async def ask(node_id: int, groups: Sequence[str]) -> Described:
        return await describe_at(asking, node_id, groups)

    return await ask_coordinators(asking, group_ids, ask)


async def describe_at(asking: Asking, node_id: int, groups: Sequence[str]) -> Described:
    """Ask one coordinator for these groups: as groups of the consumer protocol, then as classic ones, then as shared.

    Each question is about what the one before has not found. Where the broker does not offer DescribeGroups, a group
    that it has in no other protocol may be a classic one: it gets UnsupportedVersion.
    """

    def make_classic(version: int, left: Sequence[str]) -> DescribeGroupsRequest:
        return DescribeGroupsRequest(groups=list(left), include_authorized_operations=version >= _OPERATIONS)

    async def consumer(left: Sequence[str]) -> Described:
        wanted = ConsumerGroupDescribeRequest(group_ids=list(left), include_authorized_operations=True)
        response = await asking.broker(node_id, ConsumerGroupDescribeRequest, always(wanted))
        return await asking.read(lambda: described_consumer_groups(response, node_id), _members(response))

    async def classic(left: Sequence[str]) -> Described:
        response = await asking.broker(node_id, DescribeGroupsRequest, lambda version: make_classic(version, left))
        return await asking.read(lambda: described_classic_groups(response, node_id), _members(response))

    async def share(left: Sequence[str]) -> Described:
        wanted = ShareGroupDescribeRequest(group_ids=list(left), include_authorized_operations=True)
        response = await asking.broker(node_id, ShareGroupDescribeRequest, always(wanted))
        return await asking.read(lambda: described_share_groups(response, node_id), _members(response))

    found: Described = {}
    for question in (consumer, classic, share):
        left = [one for one in groups if one not in found or is_undescribed(found[one])]
        try:
            answers = await question(left) if left else {}
        except UnsupportedVersion as error:
            # The broker has no groups of this kind. Only classic ones each broker has, also where a proxy hides this.
            answers = dict.fromkeys(left, error) if question is classic else {}
        if question is share:  # of a group that exists in no protocol, the answer before says it best
            answers = {one: answer for one, answer in answers.items() if not is_not_found(answer) or one not in found}
        found |= answers
    return found


def _members(
    response: DescribeGroupsResponse | ConsumerGroupDescribeResponse | ShareGroupDescribeResponse,
) -> int:
    return sum(len(group.members) for group in response.groups)


async def all_offsets_of(
    asking: Asking, group_ids: Collection[str], *, stable: bool
) -> dict[str, Offsets | KafkaError]:
    """Return all that each group has committed. ``stable``: wait for transactions that are about to replace some."""

    async def ask(node_id: int, groups: Sequence[str]) -> Mapping[str, Offsets | KafkaError]:
        return await offsets_at(asking, node_id, groups, stable=stable)

    return await ask_coordinators(asking, group_ids, ask)


async def offsets_at(
    asking: Asking, node_id: int, groups: Sequence[str], *, stable: bool
) -> Mapping[str, Offsets | KafkaError]:
    """Ask one coordinator for all that these groups have committed.

    Topics are asked for by name: the answer to a newer version names ids alone.
    """
    newest = TOPIC_IDS - 1
    takes_many = await asking.version(node_id, OffsetFetchRequest, newest) >= MANY_GROUPS
    answers: dict[str, Offsets | KafkaError] = {}
    for some in [groups] if takes_many else [[one] for one in groups]:
        asked_in = newest

        def make(version: int, some: Sequence[str] = some) -> OffsetFetchRequest:
            nonlocal asked_in
            asked_in = version
            return all_offsets_request(some, version, stable=stable)

        response = await asking.broker(node_id, OffsetFetchRequest, make, newest)
        answers |= await asking.read(partial(all_offsets, response, some, asked_in), _partitions(response))
    return answers


def _partitions(response: OffsetFetchResponse) -> int:
    old = sum(len(topic.partitions) for topic in response.topics)
    return old + sum(len(topic.partitions) for group in response.groups for topic in group.topics)


# Changes


async def delete_groups(asking: Asking, group_ids: Collection[str]) -> dict[str, KafkaError | None]:
    async def ask(node_id: int, groups: Sequence[str]) -> Mapping[str, KafkaError | None]:
        wanted = DeleteGroupsRequest(groups_names=list(groups))
        return deleted_groups(await asking.change(node_id, wanted))

    unsure: set[str] = set()
    found = await ask_coordinators(asking, group_ids, ask, unsure=unsure)
    # A group that an attempt in doubt has deleted is not found by the next attempt.
    found |= {one: None for one in unsure if is_not_found(found[one])}
    return found | behind_doubt({one: found[one] for one in unsure})


async def delete_offsets(
    asking: Asking, group_id: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, KafkaError | None]:
    async def ask(node_id: int) -> dict[TopicPartition, int]:
        wanted = delete_offsets_request(group_id, partitions)
        response = await asking.change(node_id, wanted)
        return deleted_offsets(response, partitions)

    unsure: set[str] = set()
    codes = await ask_coordinator(asking, group_id, partitions, ask, unsure=unsure)
    results = {
        tp: _refusal(found, f"group {group_id!r}, {tp}", _DELETING.get(found, "")) if isinstance(found, int) else found
        for tp, found in codes.items()
    }
    return behind_doubt(results) if unsure else results


async def remove_members(
    asking: Asking, group_id: str, members: Sequence[str], instances: Sequence[str], reason: str
) -> dict[str, KafkaError | None]:
    leaving = [*(Leaving(one, False) for one in members), *(Leaving(one, True) for one in instances)]
    unsure: set[str] = set()
    # What a coordinator has answered for good. Before Kafka 2.4 each member has a request of its own: the answer for
    # one stays what it is if the request for the next one is never answered.
    done: dict[Leaving, int] = {}
    before_doubt: set[Leaving] = set()

    async def ask(node_id: int) -> dict[Leaving, int]:
        version = await asking.version(node_id, LeaveGroupRequest)
        left = [one for one in leaving if one not in done]
        if version < MANY_MEMBERS and any(one.is_instance for one in left):
            raise UnsupportedVersion(f"broker {node_id} cannot remove static members: that needs Kafka 2.4 (KIP-345)")
        codes: dict[Leaving, int] = {}
        for some in [left] if version >= MANY_MEMBERS else [[one] for one in left]:
            wanted = leave_request(group_id, some, reason, version)
            response = await asking.change(node_id, wanted, version)
            codes |= left_members(response, some, version)
            done.update((one, codes[one]) for one in some if not passes(broker_error(codes[one])))
            if not unsure:
                before_doubt.update(done)
        return codes | done

    codes = await ask_coordinator(asking, group_id, leaving, ask, unsure=unsure) | done
    results: dict[str, KafkaError | None] = {}
    for one, found in codes.items():
        is_doubtful = bool(unsure) and one not in before_doubt
        # A member that an attempt in doubt has removed is unknown to the next attempt.
        if isinstance(found, int) and is_doubtful and found == ErrorCode.UNKNOWN_MEMBER_ID:
            found = ErrorCode.NONE
        where = f"group {group_id!r}, member {one.name!r}"
        result = {one.name: _refusal(found, where, "READ") if isinstance(found, int) else found}
        results |= behind_doubt(result) if is_doubtful else result
    return results


#: Which permission was missing where OffsetDelete is refused.
_DELETING: Final[Mapping[int, str]] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "DELETE",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "READ",
}


def _refusal(code: int, where: str, needs: str) -> KafkaError | None:
    return broker_error(code, where, needs=needs) if code != ErrorCode.NONE else None
