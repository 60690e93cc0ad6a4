"""The options for where a query starts and ends, parsed before the cluster is asked (by ``resolve.py``). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError
from aiokc.types import named

from ..offsets import Offsets, from_json, quoted
from .values import at_least, json_object, one_of

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}
_START_EXAMPLE: Final = '{"events":{"0":23,"1":-2}}'
_END_EXAMPLE: Final = '{"events":{"0":23,"1":-1}}'
_TIME_EXAMPLE: Final = '{"events":{"0":1700000000000,"1":1700000000000}}'


@dataclass(frozen=True)
class AtOffset:
    """EARLIEST or LATEST for all partitions, or an offset (or one of the two) for each partition.

    ``otherwise`` is for the partitions that ``at`` leaves out; if it is None, ``at`` must name all.
    """

    option: str
    at: int | Offsets
    otherwise: int | None = None


@dataclass(frozen=True)
class AtTime:
    """The first record at or after a time in ms, one for all partitions or one for each.

    ``otherwise`` is for the partitions that ``at`` leaves out. ``no_match`` is for partitions without such a record:
    LATEST, or None for an error.
    """

    option: str
    at: int | Offsets
    no_match: int | None = None
    otherwise: int | None = None

    @property
    def is_start(self) -> bool:
        """Whether a query starts there; else it ends there."""
        return self.option.startswith("starting")


@dataclass(frozen=True)
class AtCommitted:
    """What a consumer group has committed; ``otherwise`` is for partitions without a commit (None: an error)."""

    option: str
    group_id: str
    otherwise: int | None = None


Bound: TypeAlias = AtOffset | AtTime | AtCommitted
Side: TypeAlias = Literal["starting", "ending"]
SIDES: Final[tuple[Side, Side]] = ("starting", "ending")


def parse_bound(side: Side, given: Mapping[str, str]) -> Bound | None:
    """Return what the options of one side say; None if there are none. Raises ConfigError.

    If there are several, the order of precedence is that of Spark's own source: one time for all, times, offsets.
    """
    one_time, times, offsets = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
    default = _default(side, given)
    no_match = _no_match(side, given, is_timed=any(name.lower() in given for name in (one_time, times)))
    if (text := given.get(one_time.lower())) is not None:
        if default is not None:
            raise ConfigError(f"option '{offsets}Default' has no meaning with '{one_time}': leave it out")
        return AtTime(one_time, at_least(one_time, 0, text), no_match)
    if (text := given.get(times.lower())) is not None:
        document = json_object(times, _TIME_EXAMPLE, text)
        return AtTime(times, from_json(f"option '{times}'", document, least=0), no_match, default)
    if (text := given.get(offsets.lower())) is None:
        if default is not None:
            raise ConfigError(f"option '{offsets}Default' completes the JSON of '{offsets}', which is not given")
        return None
    return _offsets(offsets, text, default, given)


def _offsets(option: str, text: str, default: int | None, given: Mapping[str, str]) -> Bound:
    name = text.strip().lower()
    if name == "committed" and option == "startingOffsets":
        group_id = given.get("kafka.group.id", "").strip()
        if not group_id:
            raise ConfigError("startingOffsets=committed needs 'kafka.group.id': the group whose offsets are meant")
        return AtCommitted(option, group_id, default)
    if name in _NAMED:
        if default is not None:
            raise ConfigError(f"option '{option}Default' has no meaning with {option}={name}: leave it out")
        return AtOffset(option, _NAMED[name])
    is_start = option == "startingOffsets"
    example = _START_EXAMPLE if is_start else _END_EXAMPLE
    if not text.strip().startswith("{"):
        words = "earliest, latest (in a stream), committed" if is_start else "latest"
        raise ConfigError(
            f"option '{option}': give {words}, or JSON like {example} {_meaning(option)}, not {quoted(text)}"
        )
    document = json_object(option, example, text)
    return AtOffset(option, from_json(f"option '{option}'", document, least=EARLIEST), default)


def _meaning(option: str) -> str:
    """What the numbers below 0 mean in the JSON of this option, as far as a query takes them."""
    return "(-2: earliest; in a stream, -1: latest)" if option == "startingOffsets" else "(-1: latest)"


def _default(side: Side, given: Mapping[str, str]) -> int | None:
    option = f"{side}OffsetsDefault"
    text = given.get(option.lower())
    words = ("earliest", "latest") if side == "starting" else ("latest",)
    return None if text is None else _NAMED[one_of(option, words, text)]


def _no_match(side: Side, given: Mapping[str, str], *, is_timed: bool) -> int | None:
    if side == "ending":
        return LATEST
    option = "startingOffsetsByTimestampStrategy"
    text = given.get(option.lower())
    if text is not None and not is_timed:
        raise ConfigError(
            f"option '{option}' has no meaning without 'startingTimestamp' or 'startingOffsetsByTimestamp'"
        )
    return LATEST if one_of(option, ("error", "latest"), text or "error") == "latest" else None


def is_fixed(bound: Bound) -> bool:
    """Return whether ``bound`` always resolves to the same offsets, unless retention deletes them."""
    if isinstance(bound, AtCommitted) or LATEST in (bound.at, bound.otherwise):
        return False
    if isinstance(bound, AtTime):
        return bound.no_match is None
    return isinstance(bound.at, int) or LATEST not in bound.at.values()


def is_given(bound: Bound, partition: TopicPartition) -> bool:
    """Return whether ``bound`` gives an offset for this partition, so that the cluster need not be asked."""
    return isinstance(bound, AtOffset) and not isinstance(bound.at, int) and bound.at.get(partition, -1) >= 0


def named_by(bound: Bound | None, partition: TopicPartition) -> str | None:
    """Return the option that gives an offset for this partition; None if there is none."""
    return bound.option if bound is not None and is_given(bound, partition) else None


def contradict(starting: Bound | None, ending: Bound, partition: TopicPartition) -> bool:
    """Return whether the options give this partition two offsets, or two times, of which the end is the lower one."""
    if not isinstance(starting, AtOffset | AtTime) or not isinstance(ending, type(starting)):
        return False
    first, last = (
        bound.at if isinstance(bound.at, int) else bound.at.get(partition, LATEST) for bound in (starting, ending)
    )
    return 0 <= last < first


def overruled(side: Side, given: Mapping[str, str]) -> list[str]:
    """Return the options of one side that have no effect, because another one takes precedence."""
    ordered = [f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets"]
    return [name for name in ordered if name.lower() in given][1:]


def spread(bound: AtOffset | AtTime, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return what ``bound`` says for each partition: an offset, a time, EARLIEST or LATEST.

    Raises ConfigError if the JSON names a partition that the query does not read, or leaves one out and there is no
    default: the query would start or end there at an offset that nothing asked for.
    """
    wanted = sorted(partitions)
    if isinstance(bound.at, int):
        return dict.fromkeys(wanted, bound.at)
    if unknown := bound.at.keys() - wanted:
        raise ConfigError(f"{bound.option} names {named(unknown)}, which this query does not read")
    missing = [tp for tp in wanted if tp not in bound.at]
    if missing and bound.otherwise is None:
        default = bound.option.replace("ByTimestamp", "") + "Default"
        raise ConfigError(
            f"{bound.option} leaves out {named(missing)}: name every partition"
            f"{f' {_meaning(bound.option)}' if isinstance(bound, AtOffset) else ''}, or say what the others do in "
            f"'{default}' ({'earliest; in a stream, latest' if default.startswith('starting') else 'latest'})"
        )
    return {tp: bound.at.get(tp, bound.otherwise or LATEST) for tp in wanted}
