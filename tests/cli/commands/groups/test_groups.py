"""``aiokc groups``: listed and shown, members taken out, groups and offsets deleted, and brought back."""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from aiokc import Client, ErrorCode
from aiokc.testing import faults
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.faults import Fault
from tests.cli.running import Stream, aiokc, system_of
from tests.client.admin.scene import make_streams

from .running_groups import Shell, commit, csv_rows, in_virtual_time, member, told


async def test_groups_are_listed(shell: Shell) -> None:
    await commit(shell.cluster, "old", "orders", 4)
    await commit(shell.cluster, "billing", "orders", 5, 20)
    async with member(shell):
        assert await shell.rows("groups") == [
            {"group": "billing", "type": "classic", "state": "Stable", "protocol": "consumer", "members": 1, "lag": 5},
            {"group": "old", "type": "classic", "state": "Empty", "protocol": "", "members": 0, "lag": 6},
        ]
        assert [row["group"] for row in await shell.rows("groups", "b*")] == ["billing"]
        assert [row["group"] for row in await shell.rows("groups", "--state", "EMPTY")] == ["old"]
        assert [row["group"] for row in await shell.rows("groups", "--state", "stable,empty")] == ["billing", "old"]
        assert await shell.rows("groups", "--type", "consumer") == []


async def test_without_a_group(shell: Shell) -> None:
    assert (await shell.run("groups")).out == "no group\n"
    assert (await shell.run("groups", "x*")).out == "no such group\n"
    assert (await shell.run("groups", "--csv")).out == "group,type,state,protocol,members,lag\n"


async def test_a_name_that_no_group_has(shell: Shell) -> None:
    result = await shell.run("groups", "list")
    assert (result.code, result.out, result.err) == (1, "", "error: group 'list': there is no such group\n")
    await commit(shell.cluster, "billing", "orders", 5)
    result = await shell.run("groups", "billin", "b*", "--csv")
    assert result.code == 1
    assert result.err == "error: group 'billin': there is no such group; did you mean billing?\n"
    assert result.out.splitlines()[1].startswith("billing,")
    assert (await shell.run("groups", "billing", "--state", "stable")).code == 0, "there is one, in another state"


async def test_offsets_are_shown_in_kafkas_columns(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    result = await shell.run("groups", "show", "billing")
    assert result.err == "group 'billing' has no active members\n"
    heading, first, _ = result.out.splitlines()
    assert heading.split() == [
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG-TIME"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert first.split()[:6] == ["billing", "orders", "0", "4", "10", "6"]
    async with member(shell):
        rows = await shell.rows("groups", "show", "billing")
        (member_id,) = shell.cluster.members("billing")
        assert [(row["partition"], row["current_offset"], row["lag"]) for row in rows] == [
            (0, 4, 6),
            (1, 20, 0),
            (2, None, None),
        ]
        assert {(row["consumer_id"], row["host"], row["client_id"]) for row in rows} == {
            (member_id, "/127.0.0.1", "app")
        }


async def test_members_are_shown(shell: Shell) -> None:
    async with member(shell):
        (row,) = await shell.rows("groups", "show", "billing", "--members")
        assert (row["group_instance_id"], row["host"], row["client_id"]) == ("pod-1", "/127.0.0.1", "app")
        assert (row["partitions"], row["current_assignment"], row["subscription"]) == (3, "orders:0,1,2", "orders")
        short, long = [await shell.run("groups", "show", "billing", "--members", *more) for more in ([], ["-v"])]
        assert "GROUP-INSTANCE-ID" in short.out
        assert "CURRENT-ASSIGNMENT" not in short.out
        assert "CURRENT-ASSIGNMENT" in long.out


async def test_states_are_shown(shell: Shell) -> None:
    async with member(shell):
        (row,) = await shell.rows("groups", "show", "bill*", "--state")
        assert row["coordinator"].startswith("127.0.0.1:")
        assert (row["type"], row["state"], row["members"]) == ("classic", "Stable", 1)
        assert row["assignment_strategy"]


@pytest.mark.parametrize("words", [("show", "nope"), ("show", "nope*"), ("delete", "nope"), ("forget", "nope", "t")])
async def test_an_unknown_group_fails(shell: Shell, words: tuple[str, ...]) -> None:
    result = await shell.run("groups", *words)
    assert (result.code, result.out.count("\n") <= 1) == (1, True)
    assert "nope" in result.err


@pytest.mark.parametrize(
    "words",
    [
        ("show", "app"),
        ("delete", "app", "--execute"),
        ("forget", "app", "orders", "--execute"),
        ("kick", "app", "--member", "x", "--execute"),
    ],
)
async def test_a_group_of_kafka_streams_is_not_said_to_be_missing(shell: Shell, words: tuple[str, ...]) -> None:
    await commit(shell.cluster, "app", "orders", 4)
    before = shell.cluster.committed("app")
    make_streams(shell.cluster, "app")
    result = await shell.run("groups", *words, "--csv")
    assert result.code == 1
    said = "error: group 'app': this is a streams group, of which only the lag can be told (aiokc lag)\n"
    assert result.err == said
    assert shell.cluster.committed("app") == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--state", "stabel"), "did you mean stable?"),
        (("--type", "klassik"), "did you mean classic?"),
        (("show",), "GROUP"),
        (("show", "g", "--members", "--state"), "--members"),
        (("kick", "g"), "--member ID or --instance ID"),
        (("forget", "g"), "TOPIC"),
        (("forget", "g", "t:x"), "'x' names no partitions"),
        (("delete",), "GROUP"),
    ],
)
async def test_wrong_options(shell: Shell, words: tuple[str, ...], said: str) -> None:
    result = await shell.run("groups", *words)
    assert result.code == 2
    assert said in result.err


async def test_a_member_is_taken_out_only_with_execute(shell: Shell) -> None:
    async with member(shell):
        before = shell.cluster.members("billing")
        plan = await shell.run("groups", "kick", "billing", "--instance", "pod-1")
        assert (plan.code, shell.cluster.members("billing")) == (0, before)
        assert "pod-1" in plan.out
        assert "orders:0,1,2" in plan.out
        (done,) = await shell.run_line(told(plan, "to take them out of the group, run:"))
        assert (done.code, shell.cluster.members("billing")) == (0, [])
        assert done.out.splitlines()[1].endswith("removed")


@pytest.mark.parametrize("fault", [faults.lose_answer(), ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_of_a_member_without_a_clear_answer_nobody_knows(tmp_path: Path, fault: Fault) -> None:
    async def story(shell: Shell) -> None:
        async with member(shell):
            shell.cluster.intercept(ApiKey.LEAVE_GROUP, fault)
            words = ("groups", "kick", "billing", "--instance", "pod-1", "--execute", "--timeout", "20s")
            (row,) = await shell.rows(*words, code=1)
            was_carried_out = shell.cluster.members("billing") == []
            assert row["result"].startswith("unknown: " if was_carried_out else "refused: ")
            assert was_carried_out == (not isinstance(fault, ErrorCode))
            shell.cluster.heal()

    in_virtual_time(tmp_path, story)


async def test_a_dynamic_member_is_taken_out_by_its_id(shell: Shell) -> None:
    async with member(shell, instance=None):
        (member_id,) = shell.cluster.members("billing")
        (row,) = await shell.rows("groups", "kick", "billing", "--member", member_id, "--execute")
        assert (row["member"], row["instance"], row["result"]) == (member_id, None, "removed")
        assert member_id not in shell.cluster.members("billing")


async def test_a_member_that_is_not_there_fails_and_the_other_is_taken_out(shell: Shell) -> None:
    async with member(shell):
        result = await shell.run("groups", "kick", "billing", "--instance", "pod-1", "--member", "x", "--execute")
        assert (result.code, shell.cluster.members("billing")) == (1, [])
        assert "--member x: group 'billing' has no such member" in result.err


async def test_a_group_is_deleted_only_with_execute_and_can_be_brought_back(shell: Shell) -> None:
    await commit(shell.cluster, "old one", "orders", 4, 20)
    before = shell.cluster.committed("old one")
    plan = await shell.run("groups", "delete", "old*")
    assert (plan.code, shell.cluster.committed("old one"), shell.saved) == (0, before, [])
    (done,) = await shell.run_line(told(plan, "to delete them, run:"))
    assert (done.code, shell.cluster.committed("old one")) == (0, {})
    assert await shell.rows("groups") == []
    (undone,) = await shell.run_line(told(done, "to undo this:"))
    assert (undone.code, shell.cluster.committed("old one")) == (0, before)


async def test_the_told_line_deletes_the_group_that_was_shown_and_no_other(shell: Shell) -> None:
    """Its name is a pattern, too, which another group matches."""
    await commit(shell.cluster, "svc[1]", "orders", 7)
    await commit(shell.cluster, "svc1", "orders", 8)
    plan = await shell.run("groups", "delete", "svc[[]*")
    assert [line.split()[0] for line in plan.out.splitlines()[1:]] == ["svc[1]"]
    (done,) = await shell.run_line(told(plan, "to delete them, run:"))
    assert (done.code, shell.cluster.committed("svc[1]")) == (0, {})
    assert shell.cluster.committed("svc1")


async def test_a_name_that_is_read_as_a_pattern_is_told_how_to_be_written(shell: Shell) -> None:
    await commit(shell.cluster, "svc[1]", "orders", 7)
    result = await shell.run("lag", "svc[1]")
    assert result.code == 1
    assert "no group has such a name: it is read as a pattern; for the group of this name write" in result.err
    assert "'svc[[]1]'" in result.err
    assert [row["group"] for row in await shell.rows("lag", "svc[[]1]")] == ["svc[1]"]
    hint = await shell.run("groups", "kick", "svc[1]")
    assert (hint.code, "aiokc groups show 'svc[[]1]' --members" in hint.err) == (2, True)
    assert "read as a pattern" not in (await shell.run("lag", "svc[2]")).err


async def test_no_group_is_deleted_where_one_has_members(shell: Shell) -> None:
    await commit(shell.cluster, "old", "orders", 4)
    async with member(shell):
        result = await shell.run("groups", "delete", "old", "billing", "--execute")
        assert (result.code, result.out) == (4, "")
        assert "group 'billing' is Stable, with 1 member: " in result.err
        assert "instance pod-1, on /127.0.0.1" in result.err
        assert shell.cluster.committed("old")


async def test_a_group_that_cannot_be_deleted_is_reported(shell: Shell) -> None:
    await commit(shell.cluster, "old", "orders", 4)
    shell.cluster.intercept(ApiKey.DELETE_GROUPS, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    result = await shell.run("groups", "delete", "old", "--execute")
    assert result.code == 1
    assert "GROUP_AUTHORIZATION_FAILED" in result.err
    assert "undo" not in result.err


async def test_offsets_are_deleted_only_with_execute_and_can_be_brought_back(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    await commit(shell.cluster, "billing", "returns", 1)
    before = shell.cluster.committed("billing")
    plan = await shell.run("groups", "forget", "billing", "orders:1", "returns")
    assert (plan.code, shell.cluster.committed("billing")) == (0, before)
    assert [line.split()[1:] for line in plan.out.splitlines()[1:]] == [["orders", "1", "20"], ["returns", "0", "1"]]
    (done,) = await shell.run_line(told(plan, "to delete these offsets, run:"))
    assert (done.code, [str(tp) for tp in shell.cluster.committed("billing")]) == (0, ["orders-0"])
    (undone,) = await shell.run_line(told(done, "to undo this:"))
    assert (undone.code, shell.cluster.committed("billing")) == (0, before)


DELETIONS = pytest.mark.parametrize(
    ("words", "api"),
    [
        (["delete", "billing"], ApiKey.DELETE_GROUPS),
        (["forget", "billing", "orders"], ApiKey.OFFSET_DELETE),
    ],
    ids=["delete", "forget"],
)


@DELETIONS
def test_what_was_deleted_without_an_answer_can_be_brought_back(tmp_path: Path, words: list[str], api: ApiKey) -> None:
    """Only a refusal proves that nothing was deleted."""

    async def story(shell: Shell) -> None:
        await commit(shell.cluster, "billing", "orders", 4, 20)
        before = shell.cluster.committed("billing")
        shell.cluster.intercept(api, faults.lose_answer())
        result = await shell.run("groups", *words, "--execute", "--timeout", "20s", "--csv")
        shell.cluster.heal()
        assert (result.code, shell.cluster.committed("billing")) == (1, {})
        assert all(row["result"].startswith("unknown: ") for row in csv_rows(result.out))
        (undone,) = await shell.run_line(told(result, "to undo this:"))
        assert (undone.code, shell.cluster.committed("billing")) == (0, before)

    in_virtual_time(tmp_path, story)


@DELETIONS
async def test_a_deletion_that_is_cancelled_can_be_undone(shell: Shell, words: list[str], api: ApiKey) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    lost = shell.cluster.intercept(api, faults.drop())
    environ = {"AIOKC_BOOTSTRAP_SERVERS": shell.bootstrap, "XDG_STATE_HOME": str(shell.folder)}
    system = system_of(environ=environ)
    running = asyncio.ensure_future(aiokc("groups", *words, "--execute", system=system))
    await lost.caught()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert isinstance(system.stderr, Stream)
    assert f"to undo this: aiokc reset-offsets billing --from-file {shell.saved[0]}" in system.stderr.text


async def cancelled_while_the_client_stops(
    shell: Shell, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[str, str]:
    """Return what a command has written to stdout and stderr by then."""
    stop, stopping = Client.stop, asyncio.Event()

    async def stop_for_ever(client: Client) -> None:
        try:
            stopping.set()
            await asyncio.Event().wait()
        finally:
            await stop(client)

    monkeypatch.setattr(Client, "stop", stop_for_ever)
    system = system_of(environ={"AIOKC_BOOTSTRAP_SERVERS": shell.bootstrap, "XDG_STATE_HOME": str(shell.folder)})
    running = asyncio.ensure_future(aiokc("groups", *words, "--execute", system=system))
    await stopping.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert isinstance(system.stdout, Stream)
    assert isinstance(system.stderr, Stream)
    return system.stdout.text, system.stderr.text


@DELETIONS
async def test_a_deletion_that_is_cancelled_while_the_client_stops_is_told(
    shell: Shell, words: list[str], api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    out, err = await cancelled_while_the_client_stops(shell, words, monkeypatch)
    assert "deleted" in out
    assert f"to undo this: aiokc reset-offsets billing --from-file {shell.saved[0]}" in err


async def test_a_member_is_told_of_whose_removal_is_cancelled_while_the_client_stops(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(shell):
        words = ["kick", "billing", "--instance", "pod-1"]
        out, _ = await cancelled_while_the_client_stops(shell, words, monkeypatch)
        assert "removed" in out


async def test_offsets_of_a_topic_in_use_are_kept(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    async with member(shell):
        result = await shell.run("groups", "forget", "billing", "orders", "--execute")
        assert (result.code, len(shell.cluster.committed("billing"))) == (1, 1)
        assert "a member of the group subscribes to the topic: stop the members first" in result.err
        assert "undo" not in result.err


async def test_offsets_that_are_not_there(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    result = await shell.run("groups", "forget", "billing", "orders:0,7", "nope")
    assert result.code == 1
    assert "orders:7: group 'billing' has committed nothing there" in result.err
    assert "nope: group 'billing' has committed nothing there" in result.err


async def test_where_nothing_can_be_saved_nothing_is_deleted(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    (shell.folder / "aiokc").write_text("a file, and no folder")
    for words in (["delete", "billing"], ["forget", "billing", "orders"]):
        result = await shell.run("groups", *words, "--execute")
        assert result.code == 4
        assert "nothing was changed" in result.err
        assert shell.cluster.committed("billing")


async def test_a_broker_that_does_not_list_its_groups_fails_and_the_others_are_shown(shell: Shell) -> None:
    for name in ("a", "b", "c", "d"):
        await commit(shell.cluster, name, "orders", 1)
    away = shell.cluster.coordinator("a")
    shell.cluster.intercept(
        ApiKey.LIST_GROUPS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, where=lambda exchange: exchange.broker == away
    )
    result = await shell.run("groups", "--json", "--timeout", "20s")
    assert result.code == 1
    assert f"the groups of broker {away}" in result.err
    assert '"a"' not in result.out


async def test_forty_columns(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    for words in (
        ["groups"],
        ["groups", "show", "billing"],
        ["lag"],
        ["reset-offsets", "billing", "orders", "--to", "0"],
    ):
        result = await shell.run(*words, columns=40)
        assert result.code == 0
        assert all(len(line) <= 40 for line in result.out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines())


async def test_a_sum_of_lags_that_lacks_partitions_has_failed(shell: Shell) -> None:
    cluster = shell.cluster
    await commit(cluster, "billing", "orders", 4, 20, 0)
    await commit(cluster, "old", "orders", 10, 20, 0)
    denied = cluster.leader("orders", 0)
    led = [partition for partition in range(3) if cluster.leader("orders", partition) == denied]
    cluster.intercept(
        ApiKey.LIST_OFFSETS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        where=lambda exchange: exchange.broker == denied,
    )
    result = await shell.run("groups", "--timeout", "20s", "--csv")
    assert result.code == 1
    assert [line.split(",")[0] for line in result.out.splitlines()] == ["group", "billing", "old"]
    more = f" and {len(led) - 1} more" if len(led) > 1 else ""
    lines = result.err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [f"group '{name}', orders-0{more}" for name in ("billing", "old")]
    assert all("DESCRIBE" in line for line in lines)
    assert len(led) > 1, "one line stands for several partitions"


EVIL = "evil\x1b]0;owned\x07\x1b[2J it's \\x\x85"


@pytest.mark.parametrize(
    "words",
    [
        ("groups", "delete", "evil*"),
        ("groups", "delete", "evil*", "--execute"),
        ("groups", "forget", EVIL, "orders"),
        ("groups", "show", EVIL),
        ("reset-offsets", EVIL, "--to", "earliest", "--all-topics"),
        ("lag", "evil*", "--fail-above", "0"),
    ],
)
async def test_no_name_of_a_group_moves_the_cursor(shell: Shell, words: tuple[str, ...]) -> None:
    """Whoever joins a group chooses its name."""
    await commit(shell.cluster, EVIL, "orders", 4, 20)
    result = await shell.run(*words)
    assert "evil\\x1b" in result.err + result.out
    assert result.err.translate({ord("\n"): ""}).isprintable()


async def test_a_line_to_copy_means_the_group_with_that_name(shell: Shell) -> None:
    await commit(shell.cluster, EVIL, "orders", 4, 20)
    result = await shell.run("groups", "forget", EVIL, "orders")
    line = result.err.splitlines()[-1]
    bash = ["bash", "-c", f"export LC_ALL=C.UTF-8; printf '%s\\0' {line}"]
    shown = subprocess.run(bash, capture_output=True, check=True)  # noqa: ASYNC221
    words = shown.stdout.decode().split("\0")
    assert words[:5] == ["aiokc", "groups", "forget", EVIL, "orders"]
