"""What is aimed at with the producer: processor time, stalls, acknowledgements, and memory beside a stopped broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..producers import PRODUCERS
from ..producers.job import BUFFER_MEMORY
from ..studies import acknowledging, complete
from .verdict import Verdict

Rows = Sequence[Mapping[str, str]]

_CASE: Final = "100B-none"
#: A client, its peer, and what part of the peer's processor time for each record it may take.
_MOST_CPU: Final = (("send_many", "franz-go", 1.0), ("send_soon", "confluent", 1.0), ("send", "aiokafka", 1 / 4))
_MOST_STALL_P99: Final = 5.0
_BEYOND_BUFFER: Final = 64 << 20


def producing_verdicts(studied: Mapping[str, Rows]) -> list[Verdict]:
    """Return whether the producer's studies, by name, reach their aims; nothing for what was not run."""
    judges = {"producing": _producing, "acknowledging": _acknowledging, "stopped_broker": _stopped}
    return [verdict for name, judge in judges.items() for verdict in judge(studied.get(name, []))]


def _producing(rows: Rows) -> Iterable[Verdict]:
    found = {(row["case"], row["client"]): row for row in complete(rows)}
    for name, other, share in _MOST_CPU:
        client, peer = PRODUCERS[name].label, PRODUCERS[other].label
        if {(_CASE, client), (_CASE, peer)} <= found.keys():
            mine, theirs = (float(found[_CASE, one]["CPU s per M records"]) for one in (client, peer))
            work = f"producing {_CASE}: {client} beside {peer}, CPU s per M records"
            yield Verdict(work, f"at most {share * theirs:.2f}", f"{mine:.2f}", mine <= share * theirs)
    own = [row for row in rows if row["client"].startswith("aiokc")]
    if own and own == complete(own):  # one that failed may have been the worst
        worst, row = max(((_stall_p99(row), row) for row in own), key=lambda one: one[0])
        what = f"{worst:.1f} ms ({row['case']}, {row['client']})"
        yield Verdict(
            "producing, all rows: stalls of the loop, p99",
            f"under {_MOST_STALL_P99:g} ms",
            what,
            worst < _MOST_STALL_P99,
        )


def _stall_p99(row: Mapping[str, str]) -> float:
    return float(row["loop stall p99 / max ms"].split(" / ")[0])


def _acknowledging(rows: Rows) -> Iterable[Verdict]:
    """A client that keeps a whole processor busy by asking without a pause is no peer: it is there to be looked at.

    A peer that failed may have been the best one: then nothing is compared.
    """
    labels = acknowledging.CLIENTS
    no_peers = {labels[name] for name in ("bare", "bare-uvloop", "confluent-spins")}
    found = {row["client"]: float(row["p50 ms"]) for row in complete(rows)}
    names = {row["client"] for row in rows if not row["client"].startswith("aiokc")} - no_peers
    peers = {client: p50 for client, p50 in found.items() if client in names}
    for client, p50 in found.items():
        if client.startswith("aiokc") and peers.keys() == names and peers:
            best = min(peers, key=peers.__getitem__)
            yield Verdict(
                f"{client}: to the acknowledgement, p50 ms",
                f"at most {peers[best]:.2f}, {best}'s",
                f"{p50:.2f}",
                p50 <= peers[best],
            )


def _stopped(rows: Rows) -> Iterable[Verdict]:
    most = (BUFFER_MEMORY + _BEYOND_BUFFER) / 1e6
    for row in complete(rows):
        if row["client"].startswith("aiokc"):
            grown = float(row["memory MB"])
            work = f"beside a stopped broker: {row['client']}, {row['values']}, memory"
            yield Verdict(work, f"at most {most:.0f} MB, buffer_memory and 64 MiB", f"{grown:.1f} MB", grown <= most)
