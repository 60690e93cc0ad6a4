"""Mutants that no test has to catch, each with its reason: none of them changes anything that can be observed."""

from __future__ import annotations

from typing import Final, NamedTuple

from .mutant import Mutant


class Explained(NamedTuple):
    """A mutant by its function, its line, and its change; ``reason``: why that is no wrong change.

    ``line`` may be the beginning of the line; where ``operator`` is "", every change of the line is meant.
    """

    function: str
    operator: str
    line: str
    reason: str

    def is_of(self, mutant: Mutant) -> bool:
        is_there = self.function == mutant.function and mutant.line.startswith(self.line)
        return is_there and self.operator in ("", mutant.operator)


EXPLAINED: Final[tuple[Explained, ...]] = (
    Explained(
        "checked_partitions",
        "never",
        "if is_alike and type(one[1]) is int and (0 <= one[1] <= MOST_32):",
        "a shorter way for thousands of partitions: the other branch says the same of each",
    ),
    Explained(
        "RecordStream.close",
        "one more",
        "self.ahead = min(max(2 * self._count, LEAST_AHEAD), _MOST_AHEAD)",
        "how many records are made ahead is a guess, and any one is right",
    ),
    Explained(
        "PositionValidator._may_be_old",
        "another comparison",
        "return now - self._behind[tp][1] < self._timeout",
        "a moment in time more or less",
    ),
    Explained(
        "FetchPlanner.plan",
        "the other constant",
        "node.has_more = False",
        "the answer, before which this broker is asked for nothing, says it anew; until then it makes shares smaller",
    ),
    Explained(
        "Deserializing._fill",
        "another comparison",
        "if time() > time_slice.ends:",
        "when others get their turn, a moment earlier or later",
    ),
    Explained("AssignedPartitions.__init__", "one more", "self._tokens = count(1)", "tokens only have to differ"),
    Explained(
        "Subscription.__init__",
        "the other constant",
        "self.is_matched = False",
        "read only with a pattern, which sets it",
    ),
    Explained("MemberState.__init__", "one more", "self._step = 0", "steps only have to differ"),
    Explained(
        "FetchPlanner._look_at",
        "always",
        "if self._without_leader:",
        "a shorter way where all partitions have leaders: to pop from an empty dict does nothing",
    ),
    Explained(
        "PartitionPosition",
        "one more",
        "processed_position: int = -1",
        "no offset, as -2 is none: it is read only where there is a position, and taking the first position sets it",
    ),
    Explained(
        "Reconciler._assign",
        "another comparison",
        "if len(added) > MANY_PARTITIONS:",
        "from how many partitions on other tasks run in between: one more or less",
    ),
    Explained(
        "Fetcher._look",
        "another comparison",
        "while self._look_at(now, _LOOK_AT_ONCE) or loop.time() - since > _LOOK_SECONDS:",
        "at the very end of its millisecond it looks once more before others get their turn: a moment more or less",
    ),
    Explained(
        "ClassicProtocol.moved",
        "always",
        "if self.machine.watched_topics != self._leader.watched:",
        "a shorter way after most events: to be interested in the same topics again changes nothing",
    ),
    Explained(
        "AllPartitions._run",
        "always",
        "if has_left:",
        "to be here is to have left: any other end of the task group is an exception, or a cancellation from outside",
    ),
    Explained(
        "",
        "drop an operand",
        "NEXT: Final[Mapping[State, Mapping[type[Event], State]]] =",
        "where an event may lead is what tests hold the machine against, which itself asks only whether it may come",
    ),
    Explained(
        "FrameTransport._cut_off_socket",
        "another comparison",
        "if own is None or own.fileno() < 0:",
        "a closed socket has -1; no connection has 0, unless the application closes its standard input",
    ),
    Explained("_path", "always", "if os.name != 'nt':", "so it is wherever these tests run"),
    Explained(
        "",
        "one more",
        "_MOST_SHARES: Final = 5",
        "how many shares a handshake waits for is a guess, and any one is right",
    ),
    Explained(
        "SaslSession._take_over",
        "drop an assignment",
        "self._mechanism = mechanism",
        "it is of the same principal as the one before, and no more than that is asked of it",
    ),
)


def explanation(mutant: Mutant) -> str | None:
    """Return why it need not be caught; None where it must be."""
    for one in EXPLAINED:
        if one.is_of(mutant):
            return one.reason
    return None
