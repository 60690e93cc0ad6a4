"""Which offsets a reset plan has, for each target; how a plan is shown, saved and read again."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiokc.admin import (
    Back,
    LikeGroup,
    ResetPlan,
    ResetReason,
    ResetTarget,
    Shift,
    ToCommitted,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
)
from aiokc.core.admin.reset_rows import ResetFacts, reset_rows, time_of
from aiokc.errors import ConfigError
from tests.suite.examples import examples

READ, NEW, GONE = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
#: The logs hold the offsets 10 to 99. The group has read one partition up to 50, nothing of another, and a third does
#: not exist.
FACTS = ResetFacts(
    starts={READ: 10, NEW: 10},
    ends={READ: 100, NEW: 100},
    committed={READ: OffsetAndMetadata(50), GONE: OffsetAndMetadata(7)},
    at_time={READ: OffsetAndTimestamp(60, 1_000), NEW: None},
    copied={READ: OffsetAndMetadata(70)},
)
NO, CLAMPED, SAME = ResetReason.NONE, ResetReason.CLAMPED, ResetReason.UNCHANGED
BARE = ResetReason.NOTHING_COMMITTED


@pytest.mark.parametrize(
    ("target", "read", "new"),
    [
        (ToEarliest(), (10, NO), (10, NO)),
        (ToLatest(), (100, NO), (100, NO)),
        (ToTime(900), (60, NO), (100, ResetReason.NO_RECORD_THAT_YOUNG)),
        (Back(900), (60, NO), (100, ResetReason.NO_RECORD_THAT_YOUNG)),
        (ToOffset(30), (30, NO), (30, NO)),
        (ToOffset(50), (50, SAME), (50, NO)),
        (ToOffset(3), (10, CLAMPED), (10, CLAMPED)),
        (ToOffset(100), (100, NO), (100, NO)),
        (ToOffset(101), (100, CLAMPED), (100, CLAMPED)),
        (ToCommitted(), (50, SAME), (100, BARE)),
        (Shift(-5), (45, NO), (None, BARE)),
        (Shift(0), (50, SAME), (None, BARE)),
        (Shift(-1_000), (10, CLAMPED), (None, BARE)),
        (Shift(1_000), (100, CLAMPED), (None, BARE)),
        (LikeGroup("other"), (70, NO), (None, ResetReason.NOTHING_TO_COPY)),
        (ToOffsets({READ: 20}), (20, NO), (None, ResetReason.NO_OFFSET_GIVEN)),
    ],
    ids=str,
)
def test_each_target(
    target: ResetTarget, read: tuple[int | None, ResetReason], new: tuple[int | None, ResetReason]
) -> None:
    rows = {row.partition: row for row in reset_rows(target, [GONE, NEW, READ, READ], FACTS)}
    assert list(rows) == [READ, NEW, GONE], "each once, in order"
    assert (rows[READ].new, rows[READ].reason) == read
    assert (rows[NEW].new, rows[NEW].reason) == new
    assert (rows[GONE].new, rows[GONE].reason) == (None, ResetReason.NO_SUCH_PARTITION)
    assert [rows[tp].committed for tp in rows] == [50, None, 7]


def test_which_time_is_looked_up() -> None:
    assert time_of(ToTime(5), 1_000) == 5
    assert time_of(Back(300), 1_000) == 700
    assert time_of(Back(3_000), 1_000) == 0
    assert time_of(ToEarliest(), 1_000) is None


def plan(target: ResetTarget) -> ResetPlan:
    return ResetPlan("g", reset_rows(target, [READ, NEW, GONE], FACTS))


def test_what_is_written_and_the_way_back() -> None:
    earliest = plan(ToEarliest())
    assert earliest.new_offsets == {READ: 10, NEW: 10}
    assert earliest.old_offsets == {READ: 50}
    assert earliest.first_commits == {NEW}
    assert [row.diff for row in earliest.rows] == [-40, None, None]
    unchanged = plan(ToOffset(50))
    assert unchanged.new_offsets == {NEW: 50}


def test_a_plan_as_text() -> None:
    assert str(plan(ToOffset(101))).splitlines() == [
        "TOPIC  PARTITION  COMMITTED  NEW  DIFF  REASON",
        "t              0         50  100   +50  clamped",
        "t              1          -  100     -  clamped",
        "t              2          7    -     -  no such partition",
    ]
    assert str(ResetPlan("g", ())) == "TOPIC  PARTITION  COMMITTED  NEW  DIFF  REASON"


def test_a_plan_as_a_file(tmp_path: Path) -> None:
    offset_30 = plan(ToOffset(30))
    offset_30.save(tmp_path / "plan.csv")
    offset_30.save_undo(tmp_path / "undo.csv")
    assert (tmp_path / "plan.csv").read_text() == "t,0,30\nt,1,30\n"
    assert ToOffsets.load(tmp_path / "plan.csv") == ToOffsets({READ: 30, NEW: 30})
    assert ToOffsets.load(tmp_path / "undo.csv") == ToOffsets({READ: 50})


@examples(20, thorough=200)
@given(
    offsets=st.dictionaries(
        st.builds(
            TopicPartition,
            st.text("abcXYZ0123._-", min_size=1, max_size=30),
            st.integers(0, (1 << 31) - 1),
        ),
        st.integers(0, (1 << 63) - 1),
    )
)
def test_what_is_saved_is_read(offsets: dict[TopicPartition, int]) -> None:
    facts = ResetFacts(dict.fromkeys(offsets, 0), dict.fromkeys(offsets, (1 << 63) - 1), {})
    saved = ResetPlan("g", reset_rows(ToOffsets(offsets), offsets, facts)).to_csv()
    assert ToOffsets.from_csv(saved).offsets == offsets
    assert ToOffsets.from_csv(saved.replace("\n", "\r\n") + "\r\n").offsets == offsets, "as other systems write lines"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,0,5\nt,1\n", "line 2 .* has 2 columns"),
        ("g,t,0,5\n", "line 1 .* has 4 columns"),
        ("t,0,-5\n", "line 1 .* not negative"),
        ("t,0,٣\n", "line 1 .* whole numbers"),
        ("t,0,5\nt,0,6\n", "line 2: t-0 has an offset already, 5"),
        (",0,5\n", "line 1 .* wanted are a topic"),
        ("t,2147483648,5\n", "line 1 .* 32 bits"),
        ("t,0,9223372036854775808\n", "line 1 .* 64"),
        ("TOPIC,PARTITION,OFFSET\n", "line 1 "),
        ('"t,0,5\n', "line 1 is no CSV"),
    ],
)
def test_a_file_that_is_none(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        ToOffsets.from_csv(text)
    (tmp_path / "wrong.csv").write_text(text)
    with pytest.raises(ConfigError, match=rf"wrong\.csv: {said}"):
        ToOffsets.load(tmp_path / "wrong.csv")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "wrong.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match=r"wrong\.csv"):
        ToOffsets.load(tmp_path / "wrong.csv")


def test_a_time_is_milliseconds_or_a_datetime_with_its_zone() -> None:
    new_year = datetime(2026, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    assert ToTime(new_year + timedelta(microseconds=1_999)) == ToTime(1_767_225_600_001)
    assert ToTime(datetime(1970, 2, 1, tzinfo=UTC)).timestamp == 31 * 86_400_000
    with pytest.raises(ConfigError, match=r"timestamp=1767225600 are seconds .2026-01-01"):
        ToTime(1_767_225_600)
    with pytest.raises(ConfigError, match="zone"):
        ToTime(datetime(2026, 1, 1))
    with pytest.raises(ConfigError, match="must be a whole number of at least 0"):
        ToTime(datetime(1969, 1, 1, tzinfo=UTC))
    assert pickle.loads(pickle.dumps(ToTime(8_000))) == ToTime(8_000) == copy.deepcopy(ToTime(8_000))


class Whole:
    """A whole number that is no int, as those of numpy's arrays."""

    def __index__(self) -> int:
        return 5


def test_whole_numbers_become_ints() -> None:
    five: Any = Whole()
    offsets = {READ: five}
    made = [ToTime(five), ToOffset(five), Shift(five), Back(five), ToOffsets(offsets)]
    offsets.clear()  # it is the caller's
    assert made == [ToTime(5), ToOffset(5), Shift(5), Back(5), ToOffsets({READ: 5})]


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "5", 1 << 63, None])
def test_numbers_that_are_none(wrong: object) -> None:
    for kind in (ToTime, ToOffset, Back):
        with pytest.raises(ConfigError, match="must be a whole number"):
            kind(wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="offset of t-0"):
        ToOffsets({READ: wrong})  # type: ignore[dict-item]
    if wrong != -1:
        with pytest.raises(ConfigError, match="offsets="):
            Shift(wrong)  # type: ignore[arg-type]
