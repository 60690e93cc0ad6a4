"""Renders the measurements of rebalancing groups, and the aims for them, as Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final, TypeAlias

from ..report.verdict import Verdict, render_verdicts

#: By how much a gap may exceed the calm one of the same run: writing and receiving a record vary by so much.
JITTER: Final = 0.1
_OURS: Final = "aiokc"
_GAP_HEADINGS: Final = ("not moved", "their longest gap: ms (calm)")


@dataclass(frozen=True, slots=True)
class Settled:
    """One measurement; times in seconds.

    formed        from the start of all members to the last change of the assignment
    joined        the same for one member more
    first         from its start to its first record
    killed        from the death of another one, in a process of its own, to the last change; None: none was killed
    calm          the longest silence of any partition while nothing rebalanced
    unaffected    how many partitions have the same owner before and after that member joined ...
    longest_gap   ... and the longest silence of one of them
    """

    formed: float
    joined: float
    first: float
    killed: float | None
    calm: float
    unaffected: int
    longest_gap: float


#: Members, protocol, client.
Key: TypeAlias = tuple[int, str, str]
#: The measurements of each, in the order of the rounds.
Measured: TypeAlias = Mapping[Key, Sequence[Settled]]

_TIMES: Final[Mapping[str, Callable[[Settled], float | None]]] = {
    "all at once": lambda settled: settled.formed,
    "one more": lambda settled: settled.joined,
    "its first record": lambda settled: settled.first,
    "one killed": lambda settled: settled.killed,
}
#: Their rebalances stop nothing but what moves.
_INCREMENTAL: Final = ("cooperative", "consumer")


def render(found: Measured, failures: Mapping[Key, Sequence[str]] | None = None) -> str:
    """Return the table: medians, and least and greatest of the two times; below it what failed, with the reasons.

    Last come the aims, if peers ran too.
    """
    headings = ("members", "protocol", "client", *(f"{name}: s" for name in _TIMES), *_GAP_HEADINGS)
    lines = [f"| {' | '.join(headings)} |", f"| --: | - | - |{' --: |' * (len(headings) - 3)}"]
    for (size, protocol, client), rounds in sorted(found.items()):
        cells = (
            str(size),
            protocol,
            client,
            *(_range(_times(rounds, time)) for time in _TIMES.values()),
            f"{median(one.unaffected for one in rounds):.0f}",
            f"{_gap(rounds) * 1e3:.0f} ({_calm(rounds) * 1e3:.0f})",
        )
        lines.append(f"| {' | '.join(cells)} |")
    failed = [
        f"- {size} {protocol} {client}, {reason}"
        for (size, protocol, client), reasons in sorted((failures or {}).items())
        for reason in reasons
    ]
    return "\n".join([*lines, *(["", "Failed:", *failed] if failed else [])]) + render_verdicts(list(verdicts(found)))


def verdicts(found: Measured) -> Iterator[Verdict]:
    """Yield whether the run reaches each aim: times compared with each peer, and the gaps of cooperative groups."""
    for (size, protocol, client), mine in sorted(found.items()):
        if client != _OURS:
            continue
        peers = {key[2]: theirs for key, theirs in sorted(found.items()) if key[:2] == (size, protocol)}
        del peers[_OURS]
        work = f"{size} member{'s' if size > 1 else ''}, {protocol}"
        for name, time in _TIMES.items():
            for peer, theirs in peers.items():
                ours, others = _times(mine, time), _times(theirs, time)
                if ours and others:
                    yield _beside(f"{work}: {name}, beside {peer}", ours, others)
        if protocol in _INCREMENTAL:
            yield _held(f"{work}: longest gap of what did not move", mine, peers)


def _beside(work: str, mine: Sequence[float], theirs: Sequence[float]) -> Verdict:
    """Judge medians. Rounds differ by seconds if a member joins at other moments: their differences do not."""
    behind = median(mine) - median(theirs)
    differences = [one - other for one, other in zip(mine, theirs, strict=True)]
    spread = min(max(_spread(mine), _spread(theirs)), _spread(differences))
    said = f"{median(mine):.2f} s" + (f", {behind:.3f} s more; spread {spread:.3f} s" if behind > 0 else "")
    return Verdict(work, f"at most {median(theirs):.2f} s", said, behind <= 0, is_within_spread=0 < behind < spread)


def _held(work: str, mine: Sequence[Settled], peers: Mapping[str, Sequence[Settled]]) -> Verdict:
    most = _calm(mine) + JITTER
    others = "".join(f"; {peer}: {_gap(theirs) * 1e3:.0f} ms" for peer, theirs in peers.items())
    said = f"{_gap(mine) * 1e3:.0f} ms (calm: {_calm(mine) * 1e3:.0f} ms{others})"
    return Verdict(work, f"at most {most * 1e3:.0f} ms", said, _gap(mine) <= most)


def _times(rounds: Sequence[Settled], time: Callable[[Settled], float | None]) -> list[float]:
    return [seconds for one in rounds if (seconds := time(one)) is not None]


def _gap(rounds: Sequence[Settled]) -> float:
    return median(one.longest_gap for one in rounds)


def _calm(rounds: Sequence[Settled]) -> float:
    return median(one.calm for one in rounds)


def _spread(seconds: Sequence[float]) -> float:
    return max(seconds) - min(seconds)


def _range(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"{median(seconds):.2f} ({min(seconds):.2f} - {max(seconds):.2f})"
