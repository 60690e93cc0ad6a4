from __future__ import annotations

import itertools
import threading
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from aiokc.testing import Cluster
from benchmarks.measuring.process import ProcessFailed
from benchmarks.rebalance import __main__ as rebalance
from benchmarks.rebalance import settle
from benchmarks.rebalance.__main__ import README
from benchmarks.rebalance.board import Board
from benchmarks.rebalance.settle import Unsettled
from benchmarks.rebalance.table import Settled, render, verdicts
from benchmarks.report.verdict import Verdict


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_group_is_steady_once_all_have_something_and_nothing_changes() -> None:
    clock = Clock()
    board = Board(3, clock)
    board.took(0, [0, 1, 2])
    clock.now = 110.0
    assert board.is_steady(1, 4.0)
    assert not board.is_steady(2, 4.0)
    board.gave(0, [2])
    board.took(1, [2])
    clock.now = 113.0
    assert not board.is_steady(2, 4.0)
    clock.now = 114.0
    assert board.is_steady(2, 4.0)
    assert board.disputed == 0
    board.took(0, [2])
    assert board.disputed == 1


def test_a_gap_is_the_longest_silence_the_one_that_lasts_included() -> None:
    clock = Clock()
    board = Board(2, clock)
    assert not board.all_heard()
    for now, partition in [(100.0, 0), (101.0, 0), (101.0, 1), (104.0, 0), (105.0, 0)]:
        clock.now = now
        board.heard(0, [partition])
    assert board.all_heard()
    assert board.new_window() == [3.0, 4.0]
    clock.now = 106.0
    assert board.new_window() == [1.0, 5.0]


@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        pytest.param("aiokc", "eager", marks=pytest.mark.long),
        ("aiokc", "cooperative"),
        pytest.param("aiokc", "consumer", marks=pytest.mark.long),
        pytest.param("java", "consumer", marks=[pytest.mark.long, pytest.mark.kafka]),
    ],
)
def test_a_client_is_measured(client: str, protocol: str) -> None:
    kill = protocol == "consumer"  # that takes a session timeout
    with (
        Cluster(topics={settle.TOPIC: settle.PARTITIONS}).in_thread() as cluster,
        rebalance.writing(cluster.bootstrap, settle.TOPIC, settle.PARTITIONS),
    ):
        settled = settle.measure(cluster.bootstrap, client, protocol, 2, 0.0, quiet=0.5, kill=kill)
    assert 0 < settled.formed < 100
    assert 0 < settled.joined < 100
    assert 0 < settled.first < 100
    assert settled.killed is None if not kill else settled.killed is not None and 0 < settled.killed < 60
    assert 0 < settled.calm < 100
    assert settled.unaffected > 0
    if protocol == "cooperative":
        assert settled.unaffected == 134, "66 go to the third member, the others stay where they are"


def test_the_table_has_medians() -> None:
    found = {(10, "eager", "aiokc"): [Settled(3.0 + n, 1.0 + n, 2.0, None, 0.1, 90 + n, 0.2) for n in range(3)]}
    assert render(found).splitlines()[-1] == (
        "| 10 | eager | aiokc | 4.00 (3.00 - 5.00) | 2.00 (1.00 - 3.00) | 2.00 (2.00 - 2.00) | - | 91 | 200 (100) |"
    )


def times(*seconds: float) -> list[Settled]:
    """Return rounds that formed in these seconds, and in which a further member took a second each."""
    return [Settled(each, 1.0, 2.0, None, 0.25, 90, 0.25) for each in seconds]


@pytest.mark.parametrize(
    ("mine", "theirs", "said", "outcome"),
    [
        pytest.param((3.0, 3.1, 3.2), (3.1, 3.1, 3.1), "3.10 s", "reached", id="as long"),
        pytest.param((3.0, 3.2, 3.3), (3.1, 3.1, 3.1), "3.20 s, 0.100 s more; spread 0.300 s", "within the spread"),
        pytest.param((3.2, 3.2, 3.3), (3.0, 3.1, 3.05), "3.20 s, 0.150 s more; spread 0.100 s", "**missed**"),
        pytest.param((6.0,), (3.0,), "6.00 s, 3.000 s more; spread 0.000 s", "**missed**", id="one round"),
    ],
)
def test_a_time_is_no_longer_than_a_peers(
    mine: tuple[float, ...], theirs: tuple[float, ...], said: str, outcome: str
) -> None:
    found = {(10, "eager", "aiokc"): times(*mine), (10, "eager", "aiokafka"): times(*theirs)}
    formed, joined, first = verdicts(found)
    assert (formed.work, formed.found, formed.outcome) == (
        "10 members, eager: all at once, beside aiokafka",
        said,
        outcome,
    )
    assert joined == Verdict("10 members, eager: one more, beside aiokafka", "at most 1.00 s", "1.00 s", True)
    assert first.work == "10 members, eager: its first record, beside aiokafka"


def test_that_members_join_at_other_moments_is_no_spread() -> None:
    """Each round is seconds from the others, and aiokc 0.2 s behind in every one."""
    mine = [Settled(3.0, 0.7 + n, 1.0, None, 0.25, 90, 0.25) for n in range(3)]
    theirs = [Settled(3.0, 0.5 + n, 1.0, None, 0.25, 90, 0.25) for n in range(3)]
    _, joined, _ = verdicts({(1, "eager", "aiokc"): mine, (1, "eager", "confluent"): theirs})
    assert joined.work.startswith("1 member, eager: one more")
    assert joined.outcome == "**missed**"


@pytest.mark.parametrize(("gap", "outcome"), [(0.5, "reached"), (0.51, "**missed**")])
def test_a_gap_is_no_longer_than_the_calm_one_and_what_that_varies_by(gap: float, outcome: str) -> None:
    found = {
        (50, "cooperative", "aiokc"): [Settled(3.0, 1.0, 2.0, 12.0, 0.4, 90, gap)],
        (50, "cooperative", "confluent"): [Settled(3.0, 1.0, 2.0, 11.5, 0.3, 90, 1.25)],
    }
    *_, killed, last = verdicts(found)
    assert (killed.work, killed.outcome) == ("50 members, cooperative: one killed, beside confluent", "**missed**")
    assert last.work == "50 members, cooperative: longest gap of what did not move"
    assert (last.aim, last.found) == ("at most 500 ms", f"{gap * 1e3:.0f} ms (calm: 400 ms; confluent: 1250 ms)")
    assert last.outcome == outcome


def test_what_is_aimed_at_stands_below_the_table_where_peers_ran() -> None:
    mine = {(10, "eager", "aiokc"): times(3.0)}
    assert list(verdicts(mine)) == []
    text = render({**mine, (10, "eager", "confluent"): times(3.5), (10, "cooperative", "confluent"): times(3.5)})
    assert text.index("| members |") < text.index("What is aimed at")
    assert "| 10 members, eager: all at once, beside confluent | at most 3.50 s | 3.00 s | reached |" in text
    assert "cooperative:" not in text


def test_the_clients_warm_the_broker_up_with_the_largest_group(monkeypatch: pytest.MonkeyPatch) -> None:
    done = list[tuple[object, ...]]()
    monkeypatch.setattr(rebalance, "measure", lambda *given, quiet, kill: done.append((*given, quiet, kill)))
    rebalance.warm_up("here:9092", ["aiokc", "confluent"], 50)
    assert done == [("here:9092", client, "eager", 50, 0.0, 0.5, False) for client in ("aiokc", "confluent")]


def test_a_round_that_fails_fails_its_row_and_no_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Its other rounds, and those of the other clients, took an hour."""
    turns = dict.fromkeys(("aiokc", "confluent"), 0)

    def measure(_: str, client: str, *__: object) -> Settled:
        turns[client] += 1
        if (client, turns[client]) == ("confluent", 2):
            raise Unsettled("not done after 480 s", "Traceback:\nits end")
        return times(3.0)[0]

    monkeypatch.setattr(rebalance, "LocalKafka", MagicMock())
    monkeypatch.setattr(rebalance, "writing", MagicMock())
    monkeypatch.setattr(rebalance, "warm_up", lambda *_: None)
    monkeypatch.setattr(rebalance, "measure", measure)
    monkeypatch.setattr(rebalance, "README", tmp_path / "README.md")  # not there: it is not written
    options = ("--clients", "aiokc,confluent", "--protocols", "eager", "--members", "10", "--write-readme")
    assert rebalance.main(options) == 1
    out = capsys.readouterr().out
    assert turns == {"aiokc": 3, "confluent": 3}
    assert "| 10 | eager | aiokc |" in out
    assert "| 10 | eager | confluent |" not in out
    assert out.count("failed: not done after 480 s\nTraceback:\nits end\n") == 1
    assert "- 10 eager confluent, round 2: not done after 480 s" in out


@pytest.mark.parametrize(
    ("has_broker", "has_writer", "reason"),
    [(False, True, "the broker has ended before"), (True, False, "no records are written any more")],
)
def test_without_a_broker_or_new_records_the_rest_has_failed_at_once(
    monkeypatch: pytest.MonkeyPatch, has_broker: bool, has_writer: bool, reason: str
) -> None:
    """Each measurement would take its whole time, eight minutes. What was measured before is there still."""
    node, kafka, writing = MagicMock(running=True), MagicMock(), MagicMock()
    kafka.return_value.__enter__.return_value.nodes = [node]
    writer = writing.return_value.__enter__.return_value

    def measure(*_: object) -> Settled:
        node.running, writer.is_alive.return_value = has_broker, has_writer
        return times(3.0)[0]

    monkeypatch.setattr(rebalance, "LocalKafka", kafka)
    monkeypatch.setattr(rebalance, "writing", writing)
    monkeypatch.setattr(rebalance, "warm_up", lambda *_: None)
    monkeypatch.setattr(rebalance, "measure", measure)
    found, failures = rebalance.run(["aiokc", "confluent"], ["eager"], [10], 1)
    assert found == {(10, "eager", "aiokc"): [times(3.0)[0]]}
    assert failures == {(10, "eager", "confluent"): [f"round 1: {reason}"]}


def test_who_writes_waits_for_a_producer_that_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    written = threading.Event()
    producer = MagicMock()
    producer.produce.side_effect = itertools.chain([BufferError("Local: Queue full")], itertools.repeat(None))

    def poll(_: float) -> None:
        if producer.produce.call_count >= 2:
            written.set()

    producer.poll.side_effect = poll
    monkeypatch.setattr(rebalance, "Producer", lambda _: producer)
    with rebalance.writing("localhost:1", "topic", 1) as writer:
        assert written.wait(60)
        assert writer.is_alive()
    assert producer.poll.call_args_list[0].args == (rebalance.WRITE_EVERY,)


def test_what_a_measurement_said_last_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def last_line(*_: object, **__: object) -> str:
        raise ProcessFailed("ended with code 1: KeyError", "Traceback")

    monkeypatch.setattr(settle, "last_line", last_line)
    with pytest.raises(Unsettled, match="ended with code 1: KeyError") as raised:
        settle.measure("localhost:1", "aiokc", "eager", 1, 0.0)
    assert raised.value.said == "Traceback"


def test_a_measurement_without_figures_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    for said in ("{", "[]", "{}"):
        monkeypatch.setattr(settle, "last_line", lambda *_, said=said, **__: said)
        with pytest.raises(Unsettled, match="its figures are not to be read"):
            settle.measure("localhost:1", "aiokc", "eager", 1, 0.0)


def test_the_readme_has_its_markers() -> None:
    text = README.read_text()
    assert text.index(rebalance.BEGIN) < text.index(rebalance.END)
