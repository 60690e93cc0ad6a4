"""What administrative calls raise of their own: a list that lacks a broker's part, a group that is in use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..errors import KafkaError
from ..types import TopicPartition
from .groups import GroupListing, MemberDescription


class PartialListing(KafkaError):
    """Some brokers did not list their groups: ``errors`` has them by id, ``groups`` what the others listed.

    ``retriable`` where each of these errors is.
    """

    def __init__(self, groups: Iterable[GroupListing], errors: Mapping[int, KafkaError]) -> None:
        self.groups, self.errors = tuple(groups), dict(errors)
        self.retriable = all(error.retriable for error in self.errors.values())
        failed = "; ".join(f"broker {node_id}: {error}" for node_id, error in sorted(self.errors.items()))
        super().__init__(
            f"the list of groups lacks those of {len(self.errors)} brokers ({failed}); .groups has the "
            f"{len(self.groups)} groups that the other brokers listed"
        )


class GroupIsActive(KafkaError):
    """Offsets were not written: the group has ``members``, whose next commit would undo that. Stop them first."""

    def __init__(self, group_id: str, state: str, members: Iterable[MemberDescription]) -> None:
        self.group_id, self.state, self.members = group_id, state, tuple(members)
        named = ", ".join(map(str, self.members[:10])) + (" ..." if len(self.members) > 10 else "")
        super().__init__(
            f"group {group_id!r} is {state}, with {len(self.members)} members: {named or 'none is named'}; "
            "nothing was written: stop them, and try again"
        )


class PlanIsOutdated(KafkaError):
    """Offsets were not written: the group has committed since the plan was made. Make a new plan.

    ``changed`` has (the offset in the plan, the offset now) by partition; None where nothing was committed.
    """

    def __init__(self, group_id: str, changed: Mapping[TopicPartition, tuple[int | None, int | None]]) -> None:
        self.group_id, self.changed = group_id, dict(changed)
        named = ", ".join(f"{tp} from {was} to {now}" for tp, (was, now) in sorted(self.changed.items())[:5])
        super().__init__(
            f"group {group_id!r} has committed since the plan was made ({named}{' ...' * (len(changed) > 5)}); "
            "nothing was written: make a new plan"
        )
