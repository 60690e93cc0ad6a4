"""``aiokc lag``: rows, sums, the check, and what is wrong."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer, ErrorCode
from aiokc.testing.brokers.api_keys import ApiKey
from tests.client.admin.scene import make_streams

from .running_groups import Shell, commit, csv_rows, member


async def test_each_partition_has_a_row(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    result = await shell.run("lag", "billing")
    assert (result.code, result.err) == (0, "")
    heading, first, second = result.out.splitlines()
    assert heading.split() == ["GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG-TIME", "MEMBER"]
    assert first.split()[:6] == ["billing", "orders", "0", "4", "10", "6"]
    assert second.split() == ["billing", "orders", "1", "20", "20", "0", "0", "ms", "-"]


async def test_scripts_get_all_fields(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    (row,) = await shell.rows("lag")
    assert 0 < row.pop("lag_time_ms") < 60_000
    assert row == {
        **{"group": "billing", "topic": "orders", "partition": 0, "committed": 4, "end": 10, "lag": 6},
        **{"member": None, "member_id": None, "error": None},
    }
    (as_csv,) = csv_rows((await shell.run("lag", "--csv")).out)
    assert list(as_csv) == [
        *("group", "topic", "partition", "committed", "end", "lag", "lag_time_ms", "member", "member_id", "error")
    ]
    assert (as_csv["lag"], as_csv["member"]) == ("6", "")


async def test_owners_and_partitions_without_a_commit(shell: Shell) -> None:
    async with member(shell, instance=None):
        rows = await shell.rows("lag", "billing")
        assert [(row["committed"], row["end"], row["lag"]) for row in rows] == [
            (None, 10, None),
            (None, 20, None),
            (None, 0, None),
        ]
        assert {row["member"] for row in rows} == {"app@127.0.0.1"}
        assert {row["member_id"] for row in rows} == set(shell.cluster.members("billing"))
        (by_member,) = await shell.rows("lag", "--by", "member")
        assert (by_member["member"], by_member["partitions"], by_member["unknown"]) == ("app@127.0.0.1", 3, 3)
        result = await shell.run("lag", "billing", "--fail-above", "0")
        assert result.code == 0
        assert "not all is checked" in result.err


async def test_globs_and_sums(shell: Shell) -> None:
    await commit(shell.cluster, "billing-eu", "orders", 4, 20)
    await commit(shell.cluster, "billing-eu", "returns", 1)
    await commit(shell.cluster, "billing-us", "orders", 0)
    await commit(shell.cluster, "shipping", "orders", 0)
    totals = await shell.rows("lag", "billing-*", "--total")
    assert [(row["group"], row["lag"], row["partitions"]) for row in totals] == [
        ("billing-eu", 10, 3),
        ("billing-us", 10, 1),
    ]
    by_topic = await shell.rows("lag", "billing-eu", "--by", "topic")
    assert [(row["topic"], row["lag"]) for row in by_topic] == [("orders", 6), ("returns", 4)]
    assert {row["group"] for row in await shell.rows("lag")} == {"billing-eu", "billing-us", "shipping"}
    assert {row["group"] for row in await shell.rows("lag", "shipping", "*-us")} == {"billing-us", "shipping"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--fail-above", "5"], 3),
        (["--fail-above", "6"], 0),
        (["--fail-above", "6", "--total"], 3),
        (["--fail-above", "10", "--by", "topic"], 0),
        (["--fail-above", "1d"], 0),
        (["--fail-above", "0ms"], 3),
    ],
)
async def test_a_check(shell: Shell, words: list[str], code: int) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 20)
    await commit(shell.cluster, "billing", "returns", 1)
    result = await shell.run("lag", "billing", *words)
    assert result.code == code
    assert ("above" in result.err) == (code == 3)
    assert result.out  # the rows are there all the same


async def test_what_is_above_is_named(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 0)
    result = await shell.run("lag", "--fail-above", "6")
    assert result.err.startswith("above 6: billing orders-1 (20 records, ")


async def test_a_group_or_a_glob_without_a_group_fails(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    for words in (["nope", "billing"], ["nope*", "billing"]):
        result = await shell.run("lag", *words)
        assert result.code == 1
        assert words[0] in result.err
        assert "billing  orders" in result.out
    result = await shell.run("lag", "nope")
    assert (result.code, result.out) == (1, "")
    assert (await shell.run("lag", "nope", "--fail-above", "5m")).code == 1


async def test_a_group_of_kafka_streams_has_a_lag(shell: Shell) -> None:
    await commit(shell.cluster, "app", "orders", 4)
    make_streams(shell.cluster, "app", "new-app")
    (row,) = await shell.rows("lag", "app")
    assert (row["group"], row["lag"], row["member"], row["error"]) == ("app", 6, None, None)
    result = await shell.run("lag", "app", "new-app", "nope", "--csv")
    assert (result.code, [row["group"] for row in csv_rows(result.out)]) == (1, ["app"])
    assert result.err.splitlines() == [
        "error: group 'new-app': this is a streams group, which has committed nothing",
        "error: group 'nope': there is no such group",
    ]


async def test_without_a_group(shell: Shell) -> None:
    result = await shell.run("lag")
    assert (result.code, result.out, result.err) == (0, "no group has committed an offset\n", "")
    result = await shell.run("lag", "--json")
    assert (result.code, result.out) == (0, "")


async def test_of_a_group_that_has_committed_nothing_the_others_are_not_told(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    async with Consumer("orders", bootstrap_servers=shell.cluster.bootstrap, group_id="new") as consumer:
        await consumer.wait_assigned()
    result = await shell.run("lag", "new")
    assert (result.code, result.out) == (0, "no offset is committed: 'new'\n")


async def test_a_check_tells_of_groups_that_have_committed_nothing(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4)
    for group_id in [f"new-{number}" for number in range(6)]:
        async with Consumer("orders", bootstrap_servers=shell.cluster.bootstrap, group_id=group_id) as consumer:
            await consumer.wait_assigned()
    for words, named in (
        ("new-1", "'new-1'"),
        ("new-1 billing --by topic", "'new-1'"),
        ("--total", "'new-0', 'new-1', 'new-2', 'new-3', 'new-4' and 1 more"),
    ):
        result = await shell.run("lag", *words.split(), "--fail-above", "1000", "--json")
        said = f"warning: {named}: no committed offset is seen, so nothing is checked\n"
        assert (result.code, result.err) == (0, said), words
    watched = await shell.run("lag", "new-1", "billing", "--watch", "--fail-above", "5", "--json")
    assert (watched.code, "warning: 'new-1': no committed offset is seen" in watched.err) == (3, True)
    assert (await shell.run("lag", "new-1", "--json")).err == ""


async def test_an_offset_of_64_bits(shell: Shell) -> None:
    most = (1 << 63) - 1
    await commit(shell.cluster, "billing", "orders", most)
    (row,) = await shell.rows("lag")
    assert (row["committed"], row["lag"]) == (most, 0)
    for columns in (20, 40, 80):
        assert (await shell.run("lag", columns=columns)).code == 0


async def test_an_offset_above_the_end_of_the_log_is_told(shell: Shell) -> None:
    """The lag is 0, as where all is read; but the log was truncated, or the topic recreated."""
    await commit(shell.cluster, "billing", "orders", 5_000, 20, 1)
    told = (
        "warning: group 'billing', orders-0 and 1 more: what the group has committed is above the log's end: the log "
        "was truncated, or the topic recreated"
    )
    for words in ("lag", "lag --total --fail-above 0", "groups show billing", "groups"):
        result = await shell.run(*words.split())
        assert result.code == 0
        assert told in result.err.splitlines()
    for words in ("lag billing --isolation read_committed", "groups -X isolation.level=read_committed"):
        assert "above" not in (await shell.run(*words.split())).err


async def test_a_partition_without_a_leader_fails_and_the_others_are_shown(shell: Shell) -> None:
    await commit(shell.cluster, "billing", "orders", 4, 4, 0)
    shell.cluster.intercept(
        ApiKey.LIST_OFFSETS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        where=lambda exchange: exchange.broker == shell.cluster.leader("orders", 0),
    )
    result = await shell.run("lag", "billing", "--timeout", "20s")
    assert result.code == 1
    assert "billing" in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--fail-above", "much"], "--fail-above"),
        (["--fail-above", "-1"], "--fail-above"),
        (["--watch", "1ms"], "between 100ms and 1d"),
        (["--watch", "9d"], "between 100ms and 1d"),
        (["--watch", "0"], "between 100ms and 1d"),
        (["billing", "--watch", "-5"], "--watch: '-5' is no duration"),
        (["billing", "--watch=-5s"], "--watch: '-5s' is no duration"),
        (["billing", "--watch", "-5s"], "unknown option -5s"),
        (["billing", "--watch", "+5"], "--watch: '+5' is no duration"),
        (["billing", "--watch", "5x"], "--watch: '5x' is no duration"),
        (["billing", "--watch="], "--watch: '' is no duration"),
        (["--by", "moon"], "--by"),
        (["--total", "--by", "topic"], "--by"),
        (["--isolation", "serializable"], "--isolation"),
        (["--wacth"], "--watch"),
    ],
)
async def test_wrong_options(shell: Shell, words: list[str], said: str) -> None:
    async with asyncio.timeout(10):  # what is not refused would be watched for ever
        result = await shell.run("lag", *words)
    assert result.code == 2
    assert said in result.err


async def test_brokers_that_are_gone(shell: Shell) -> None:
    for node_id in (1, 2):
        shell.cluster.take_down(node_id)
    for words in (["lag"], ["groups"], ["groups", "show", "g"], ["reset-offsets", "g", "t", "--to", "earliest"]):
        result = await shell.run(*words, "--timeout", "150ms")
        assert (result.code, result.out) == (5, ""), (words, result)
        assert result.err.startswith("aiokc: ")
        assert "Traceback" not in result.err
