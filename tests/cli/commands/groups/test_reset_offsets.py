"""``aiokc reset-offsets``: plans, what is written, the way back, and what is refused."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from aiokc import ErrorCode, TopicPartition
from aiokc.testing import faults
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from tests.cli.refused_commits import refuse_partition_1
from tests.cli.running import aiokc
from tests.suite.unused_faults import may_be_unused

from .running_groups import Shell, commit, csv_rows, in_virtual_time, member, told

ORDERS = [TopicPartition("orders", number) for number in range(3)]


async def new(shell: Shell, *words: str, code: int = 0) -> list[tuple[int | None, str | None]]:
    """Plan a reset; return the new offset and the reason of each partition."""
    before = shell.cluster.committed("billing")
    rows = await shell.rows("reset-offsets", "billing", *words, code=code)
    assert shell.cluster.committed("billing") == before  # a plan changes nothing
    return [(row["new"], row["reason"]) for row in rows]


async def test_a_plan_is_shown_and_nothing_is_changed(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    result = await shell.run("reset-offsets", "billing", "orders", "--to", "earliest")
    assert result.code == 0
    assert [line.split() for line in result.out.splitlines()] == [
        ["TOPIC", "PARTITION", "COMMITTED", "NEW", "DIFF", "REASON"],
        ["orders", "0", "4", "0", "-4", "-"],
        ["orders", "1", "20", "0", "-20", "-"],
        ["orders", "2", "-", "0", "-", "-"],
    ]
    line = told(result, "nothing was changed; to do it, run:")
    assert line == "aiokc reset-offsets billing orders --to earliest --execute"
    assert shell.cluster.committed("billing") == {ORDERS[0]: 4, ORDERS[1]: 20}
    assert shell.saved == []


async def test_targets(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    await commit(shell.cluster, "shipping", "orders", 1, 2, 0)
    assert await new(shell, "orders", "--to", "latest") == [(10, None), (20, "unchanged"), (0, None)]
    assert await new(shell, "orders", "--to", "7") == [(7, None), (7, None), (0, "clamped")]
    assert await new(shell, "orders:0,1", "--to", "committed") == [(4, "unchanged"), (20, "unchanged")]
    assert await new(shell, "orders:0-1", "--shift", "-3") == [(1, None), (17, None)]
    assert await new(shell, "orders:0-1", "--shift=9") == [(10, "clamped"), (20, "clamped")]
    assert await new(shell, "orders", "--back", "1h") == [(0, None), (0, None), (0, "no record that young: end")]
    assert await new(shell, "orders:0", "--to", "@0") == [(0, None)]
    assert await new(shell, "orders:0", "--to=-1h") == [(0, None)]
    assert await new(shell, "orders:0", "--to", "2120-01-01T00:00:00Z") == [(10, "no record that young: end")]
    assert await new(shell, "orders", "--like", "shipping") == [(1, None), (2, None), (0, None)]
    assert await new(shell, "--like", "shipping") == [(1, None), (2, None), (0, None)]
    assert await new(shell, "--all-topics", "--to", "0") == [(0, None), (0, None)]


async def test_like_with_all_topics_is_for_this_groups_partitions(shell: Shell) -> None:
    """The other group may be much larger: what it has committed elsewhere is none of this group's."""
    await commit(shell.cluster, "billing", "orders", 4, 20)
    await commit(shell.cluster, "shipping", "orders", 1, None, 0)
    await commit(shell.cluster, "shipping", "returns", 2)
    missing = (None, "the other group has committed nothing")
    assert await new(shell, "--like", "shipping", "--all-topics", code=1) == [(1, None), missing]
    result = await shell.run("reset-offsets", "payments", "--like", "shipping", "--all-topics", "--execute")
    assert (result.code, result.out, shell.cluster.committed("payments")) == (2, "", {})
    assert "--all-topics: group 'payments' has committed nothing\nleave it out to take all that shipping" in result.err


async def test_an_offset_of_64_bits_is_clamped(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    most = str((1 << 63) - 1)
    assert await new(shell, "orders:0", "--to", most) == [(10, "clamped")]
    assert await new(shell, "orders:0", "--shift", most) == [(10, "clamped")]
    assert await new(shell, "orders:0", f"--shift=-{most}") == [(0, "clamped")]


async def test_a_time_is_not_taken_for_an_offset_and_seconds_not_for_ms(shell: Shell) -> None:
    """The one would skip all that is unread, the other read each log again from its beginning."""
    await commit(shell.cluster, "billing", "orders", 4, 20)
    before = shell.cluster.committed("billing")
    for words, hint in (
        ("1762000000000", "for the time write --to @1762000000000; --from-file takes any offset"),
        ("@1762000000", "were seconds meant? Write --to @1762000000000"),
    ):
        result = await shell.run("reset-offsets", "billing", "orders", "--to", words, "--execute")
        assert (result.code, result.out) == (2, "")
        assert hint in result.err
        assert shell.cluster.committed("billing") == before
    assert await new(shell, "orders:0", "--to", "@1762000000000") == [(0, None)]
    assert await new(shell, "orders:0", "--to", "1762000000") == [(10, "clamped")]
    assert await new(shell, "orders:0", "--to", "9999999999999") == [(10, "clamped")]  # in the year 2286


async def test_a_partition_that_is_not_there_fails(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    assert await new(shell, "orders:0,9", "--to", "1", code=1) == [(1, None), (None, "no such partition")]
    result = await shell.run("reset-offsets", "billing", "order", "--to", "1", "--timeout", "20s")
    assert (result.code, result.out) == (1, "")
    assert result.err.startswith("aiokc: there is no topic 'order'; did you mean orders?")


async def test_execute_writes_and_the_line_to_undo_it_works(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    before = shell.cluster.committed("billing")
    plan = await shell.run("reset-offsets", "billing", "orders", "--to", "latest")
    (done,) = await shell.run_line(told(plan, "to do it, run:"))
    assert done.code == 0
    assert [line.split()[-1] for line in done.out.splitlines()[1:]] == ["written", "-", "written"]
    assert shell.cluster.committed("billing") == {ORDERS[0]: 10, ORDERS[1]: 20, ORDERS[2]: 0}
    undone = await shell.run_line(told(done, "to undo this:"))
    assert [each.code for each in undone] == [0, 0]  # the reset, and forgetting what was committed for the first time
    assert shell.cluster.committed("billing") == before


async def test_names_that_begin_with_a_dash_stand_behind_two(shell: Shell) -> None:
    await commit(shell.cluster, "-billing", "orders", 4)
    planned = await shell.run("reset-offsets", "--to", "latest", "--", "-billing", "orders")
    line = told(planned, "nothing was changed; to do it, run:")
    assert line == "aiokc reset-offsets --to latest --execute -- -billing orders"
    (done,) = await shell.run_line(line)
    assert shell.cluster.committed("-billing") == {ORDERS[0]: 10, ORDERS[1]: 20, ORDERS[2]: 0}
    undone = await shell.run_line(told(done, "to undo this:"))
    assert [each.code for each in undone] == [0, 0]
    assert shell.cluster.committed("-billing") == {ORDERS[0]: 4}
    deletion = await shell.run("groups", "delete", "--", "-billing")
    (deleted,) = await shell.run_line(told(deletion, "nothing was changed; to delete them, run:"))
    assert deleted.code == 0
    assert shell.cluster.committed("-billing") == {}


async def test_a_group_that_is_not_there_is_made(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    done = await shell.run("reset-offsets", "copy", "--like", "billing", "--execute")
    assert (done.code, shell.cluster.committed("copy")) == (0, shell.cluster.committed("billing"))


async def test_what_is_so_already_is_not_written(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    may_be_unused(shell.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_SERVER_ERROR))
    result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "4", "--execute")
    assert (result.code, shell.saved) == (0, [])
    assert "nothing is to be changed" in result.err


@pytest.mark.parametrize("execute", [[], ["--execute"]])
async def test_an_active_group_is_refused_by_name(shell: Shell, execute: list[str]) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    async with member(shell, instance=None):
        result = await shell.run("reset-offsets", "billing", "orders", "--to", "0", *execute)
        (member_id,) = shell.cluster.members("billing")
    assert result.code == 4
    assert f"group 'billing' is Stable, with 1 member: {member_id} (client app, on /127.0.0.1)" in result.err
    assert "nothing was changed" in result.err
    assert shell.cluster.committed("billing")[ORDERS[0]] == 4
    assert shell.saved == []


async def test_the_group_is_looked_at_again_right_before(shell: Shell) -> None:
    """A commit between the plan and the write: the plan's offsets are old, and so would be the undo's."""
    await commit(shell.cluster, "billing", "orders", 4)
    looked = 0

    async def commit_meanwhile(exchange: Exchange) -> None:
        nonlocal looked
        looked += 1
        if looked == 2:  # the first look has come to the end, with an empty group
            await commit(shell.cluster, "billing", "orders", 5)

    shell.cluster.intercept(ApiKey.DESCRIBE_GROUPS, commit_meanwhile)
    result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "0", "--execute")
    assert (result.code, shell.cluster.committed("billing")) == (4, {ORDERS[0]: 5})
    assert "orders-0 from 4 to 5" in result.err
    assert shell.saved == []


@pytest.mark.parametrize(("api", "which", "code"), [(ApiKey.DESCRIBE_GROUPS, 3, 4), (ApiKey.OFFSET_COMMIT, 1, 1)])
async def test_a_member_that_joins_in_between(shell: Shell, api: ApiKey, which: int, code: int) -> None:
    """It is seen by the last look; or it joins behind that, and the broker refuses an outsider's offsets."""
    await commit(shell.cluster, "billing", "orders", 4)
    met, joined = 0, AsyncExitStack()

    async def join(exchange: Exchange) -> None:
        nonlocal met
        met += 1
        if met == which:
            await joined.enter_async_context(member(shell))

    shell.cluster.intercept(api, join)
    async with joined:
        result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "0", "--execute")
    assert (result.code, shell.cluster.committed("billing")) == (code, {ORDERS[0]: 4})
    assert ("app" in result.err) == (code == 4)
    assert ("to undo this" in result.err, shell.saved) == (False, [])


async def test_a_partition_that_is_refused_fails_and_the_others_are_written(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)

    shell.cluster.intercept(ApiKey.OFFSET_COMMIT, refuse_partition_1)
    result = await shell.run("reset-offsets", "billing", "orders:0-1", "--to", "0", "--execute", "--csv")
    assert result.code == 1
    written, refused = csv_rows(result.out)
    assert written["result"] == "written"
    assert refused["result"].startswith("refused: OFFSET_METADATA_TOO_LARGE")
    assert "orders-1" in result.err
    assert "to undo this:" in result.err


def test_offsets_that_were_written_without_an_answer_can_be_brought_back(tmp_path: Path) -> None:
    """Only a refusal proves that nothing was written: where the answers are lost, the old offsets stay saved."""

    async def story(shell: Shell) -> None:
        await commit(shell.cluster, "billing", "orders", 4)
        before = shell.cluster.committed("billing")
        shell.cluster.intercept(ApiKey.OFFSET_COMMIT, faults.lose_answer())
        words = ["reset-offsets", "billing", "orders:0-1", "--to", "0", "--execute", "--timeout", "20s", "--csv"]
        result = await shell.run(*words)
        shell.cluster.heal()
        assert result.code == 1
        assert shell.cluster.committed("billing") == {ORDERS[0]: 0, ORDERS[1]: 0}
        assert all(row["result"].startswith("unknown: ") for row in csv_rows(result.out))
        undone = await shell.run_line(told(result, "to undo this:"))
        assert [each.code for each in undone] == [0, 0]
        assert shell.cluster.committed("billing") == before

    in_virtual_time(tmp_path, story)


async def test_offsets_that_were_written_before_a_refusal_can_be_brought_back(shell: Shell) -> None:
    """The coordinator has written them when it answers that it is not available; then a member has joined."""
    await commit(shell.cluster, "billing", "orders", 4)
    shell.cluster.intercept(
        ApiKey.OFFSET_COMMIT, faults.refuse_afterwards(ErrorCode.COORDINATOR_NOT_AVAILABLE), times=1
    )
    shell.cluster.intercept(ApiKey.OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID)
    result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "0", "--execute", "--csv")
    shell.cluster.heal()
    assert (result.code, shell.cluster.committed("billing")) == (1, {ORDERS[0]: 0})
    assert [row["result"].split(":")[0] for row in csv_rows(result.out)] == ["unknown"]
    (undone,) = await shell.run_line(told(result, "to undo this:"))
    assert (undone.code, shell.cluster.committed("billing")) == (0, {ORDERS[0]: 4})


async def test_where_the_old_offsets_cannot_be_saved_nothing_is_written(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    (shell.folder / "aiokc").write_text("a file, and no folder")
    result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "0", "--execute")
    assert (result.code, shell.cluster.committed("billing")) == (4, {ORDERS[0]: 4})
    assert "cannot be saved" in result.err


async def test_where_nobody_has_a_home_nothing_is_written(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    await commit(shell.cluster, "billing", "orders", 4)
    monkeypatch.setattr(Path, "home", home)
    words = ("reset-offsets", "billing", "orders:0", "--to", "0", "--execute")
    result = await aiokc(*words, bootstrap=shell.bootstrap, environ={"XDG_STATE_HOME": "", "HOME": ""})
    assert (result.code, shell.cluster.committed("billing")) == (4, {ORDERS[0]: 4})
    assert "cannot be saved" in result.err


async def test_a_saved_plan_is_executed_from_its_file(shell: Shell, tmp_path: Path) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    file = tmp_path / "my plan.csv"
    plan = await shell.run("reset-offsets", "billing", "orders", "--back", "1h", "--save", str(file))
    assert plan.code == 0
    assert file.read_text() == "orders,0,0\norders,1,0\norders,2,0\n"
    line = told(plan, "to do it, run:")
    assert line == f"aiokc reset-offsets billing --from-file '{file}' --execute"
    (done,) = await shell.run_line(line)
    assert (done.code, set(shell.cluster.committed("billing").values())) == (0, {0})
    again = await shell.run("reset-offsets", "billing", "orders", "--to", "5", "--save", str(file))
    assert again.code == 2
    assert "exists already" in again.err


async def test_a_file_of_several_groups_and_a_choice_of_topics(shell: Shell, tmp_path: Path) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    file = tmp_path / "exported.csv"
    file.write_text('"billing","orders",0,1\nshipping,orders,0,2\nbilling,orders,1,3\nbilling,returns,0,4\n')
    words = ("--from-file", str(file))
    assert await new(shell, *words) == [(1, None), (3, None), (4, None)]
    assert await new(shell, *words, "orders:1", "returns") == [(3, None), (4, None)]
    other = await shell.run("reset-offsets", "payments", *words)
    assert other.code == 2
    assert "no rows of group 'payments', but of billing, shipping" in other.err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no offset"),
        ("orders,0\n", "line 1"),
        ("orders,0,5\norders,x,5\n", "line 2"),
        ("TOPIC,PARTITION,OFFSET\n", "line 1"),
        ("orders,0,99999999999999999999\n", "line 1"),
        ("orders,0,1\norders,0,2\n", "has an offset already"),
        ('orders,0,"1\n', "no CSV"),
        ("\xff\xfe", "codec"),
    ],
)
async def test_files_that_are_no_plan(shell: Shell, tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "plan.csv"
    file.write_bytes(text.encode("latin-1"))
    result = await shell.run("reset-offsets", "billing", "--from-file", str(file))
    assert (result.code, result.out) == (2, "")
    assert said in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["orders"], "--to"),
        (["orders", "--to", "0", "--shift", "1"], "--shift"),
        (["--to", "0"], "which topics?"),
        (["orders", "--all-topics", "--to", "0"], "either topics or --all-topics"),
        (["--from-file", "-", "--all-topics"], "leave out --all-topics"),
        (["orders", "--to", "erliest"], "write earliest, latest, committed"),
        (["orders", "--to", "2026-13-01"], "is no time"),
        (["orders", "--to", "9223372036854775808"], "64 bits"),
        (["orders", "--to", "@x"], "64 bits"),
        (["orders", "--shift", "1.5"], "64 bits"),
        (["orders", "--back", "a while"], "--back"),
        (["orders", "--like", "billing"], "the group itself"),
        (["--like", "nope"], "has committed nothing"),
        (["orders:x", "--to", "0"], "names no partitions"),
        (["--from-file", "/dev/null/plan.csv"], "Not a directory"),
        (["orders", "--to", "0", "--save", "/dev/null/plan.csv"], "Not a directory"),
        (["orders", "--too", "0"], "--to"),
    ],
)
async def test_wrong_options(shell: Shell, words: list[str], said: str) -> None:
    result = await shell.run("reset-offsets", "billing", *words)
    assert result.code == 2, result
    assert said in result.err


async def test_a_local_time_is_told_in_utc(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    result = await shell.run("reset-offsets", "billing", "orders:0", "--to", "2026-01-02T03:04:05")
    assert "2026-01-02T03:04:05 is in local time: 2026-01-0" in result.err
    ahead = await shell.run("reset-offsets", "billing", "orders:0", "--to", "2120-01-01T00:00:00Z")
    assert "has not come yet" in ahead.err
