"""Asks the leaders of many partitions: offsets by timestamp, and the timestamp of one record; an answer for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import Final, TypeAlias, TypeVar

import anyio

from ...admin import EARLIEST
from ...config import IsolationLevel, isolation_code
from ...core.admin.first_record import Look, first_record
from ...core.cluster.by_leader import group_by_leader
from ...core.cluster.snapshot import Cluster, topic_error
from ...error_codes import ErrorCode
from ...errors import KafkaError, MalformedResponse, RecordTooLarge, broker_error
from ...net.own_thread import OwnThread
from ...types import OffsetAndTimestamp, TopicPartition
from ...wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ..cluster.list_offsets import may_pass, portions
from .asking import Asking, always

_BY_NAME: Final = 12  # the last version of Fetch that names topics by name
_PARTITION_BYTES: Final = 64 << 10
_LARGEST_BATCH: Final = 1 << 30
_FETCH_BYTES: Final = 4 << 20

# A thread looks at more bytes of records, or at a batch that decompresses to more: that may hold the loop for long.
_AT_ONCE_BYTES: Final = 256 << 10
_AT_ONCE_DECOMPRESSED: Final = 512 << 10
_MOST_THREADS: Final = 4

_MORE: Final = KafkaError("the Fetch had no record: fetch on")
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

T = TypeVar("T")
A = TypeVar("A")

#: Sends one leader one request for some of its partitions, and returns what it answers for each. The snapshot is the
#: one that names it the leader.
AskLeader: TypeAlias = Callable[
    [Cluster, int, dict[TopicPartition, A]], Awaitable[Mapping[TopicPartition, T | KafkaError]]
]


async def ask_leaders(
    asking: Asking, asked: Mapping[TopicPartition, A], ask: AskLeader[A, T]
) -> dict[TopicPartition, T | KafkaError]:
    """Return what the leaders answer for these partitions, or an error for each that has no answer.

    What newer metadata may cure is tried again until the deadline. A topic or partition that the metadata do not have
    is UnknownTopic at once. Partitions for which ``ask`` returns _MORE are asked for again, and so are those that it
    leaves out: after a pause, since a leader that says nothing about them may do so for ever.
    """
    found: dict[TopicPartition, T | KafkaError] = {}
    causes: dict[TopicPartition, KafkaError] = {}
    while left := {tp: wanted for tp, wanted in asked.items() if tp not in found}:
        progressed = False
        try:
            cluster = await asking.snapshot({tp.topic for tp in left})
        except KafkaError as error:
            causes.update(dict.fromkeys(left, error))
            if not asking.has_ended():
                # Such as a refused login: no other attempt will do better. What was found counts, though its
                # partition had a cause for another attempt before that.
                return causes | found
        else:
            by_leader = await asking.read(partial(_by_leader, cluster, left, found, causes), len(left))
            progressed = await _ask_all(cluster, by_leader, ask, found, causes)
        left = {tp: wanted for tp, wanted in left.items() if tp not in found}
        if left and (asking.has_ended() or not (progressed or await asking.may_try_again())):
            found |= {tp: asking.too_late(str(tp), causes.get(tp)) for tp in left}
    return {tp: found[tp] for tp in asked}


def _by_leader(
    cluster: Cluster,
    left: Mapping[TopicPartition, A],
    found: dict[TopicPartition, T | KafkaError],
    causes: dict[TopicPartition, KafkaError],
) -> dict[int, dict[TopicPartition, A]]:
    """Return by leader what can be asked; the other partitions get an error: for good, or a cause to try again."""
    led: dict[TopicPartition, A] = {}
    for tp, wanted in left.items():
        code = cluster.errors.get(tp.topic, ErrorCode.NONE)
        if code != ErrorCode.NONE and not (topic_error(code, tp.topic).retriable and code != _UNKNOWN):
            found[tp] = topic_error(code, tp.topic)
        elif code == ErrorCode.NONE and cluster.partition(tp) is None:
            found[tp] = broker_error(_UNKNOWN, f"{tp} does not exist")
        elif cluster.leader(tp) is None:
            causes[tp] = broker_error(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker leads {tp}")
        else:
            led[tp] = wanted
    return group_by_leader(cluster, led)


async def _ask_all(
    cluster: Cluster,
    by_leader: Mapping[int, dict[TopicPartition, A]],
    ask: AskLeader[A, T],
    found: dict[TopicPartition, T | KafkaError],
    causes: dict[TopicPartition, KafkaError],
) -> bool:
    """Ask all leaders at once; return whether all of them answered, without an error that has to pass first."""
    failed = False

    async def ask_one(node_id: int, asked: dict[TopicPartition, A]) -> None:
        nonlocal failed
        for portion in portions(asked):
            try:
                answers = await ask(cluster, node_id, portion)
            except KafkaError as error:
                answers = dict.fromkeys(portion, error)
            if not _take_in(node_id, portion, answers, found, causes):
                failed = True

    async with anyio.create_task_group() as tasks:
        for node_id, asked in by_leader.items():
            tasks.start_soon(ask_one, node_id, asked)
    return bool(by_leader) and not failed


def _take_in(
    node_id: int,
    asked: Iterable[TopicPartition],
    answers: Mapping[TopicPartition, T | KafkaError],
    found: dict[TopicPartition, T | KafkaError],
    causes: dict[TopicPartition, KafkaError],
) -> bool:
    """Take in what a leader answers; return whether that is an answer for each partition it was asked for."""
    passing: dict[TopicPartition, KafkaError] = {}
    for tp in asked:
        if tp not in answers:
            passing[tp] = MalformedResponse(f"the answer of broker {node_id} says nothing about {tp}")
            continue
        answer = answers[tp]
        if isinstance(answer, KafkaError) and may_pass(answer):
            passing[tp] = answer
        elif answer is not _MORE:
            found[tp] = answer
    causes.update(passing)
    return not passing


async def list_each(
    asking: Asking, timestamps: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
    """Return the first offset at or after each timestamp (None: there is none), or the error of each partition."""
    lister = asking.lister

    async def ask(
        cluster: Cluster, node_id: int, asked: dict[TopicPartition, int]
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None]:
        answer = await lister.ask(
            node_id, asked, timeout=asking.patience, isolation_level=isolation_level, cluster=cluster
        )
        return {**answer.found, **answer.errors}

    return await ask_leaders(asking, timestamps, ask)


async def record_times(
    asking: Asking, ranges: Mapping[TopicPartition, tuple[int, int]], isolation_level: IsolationLevel
) -> dict[TopicPartition, int | KafkaError | None]:
    """Return the timestamp of the first record in each range (from, until) of offsets; None where it holds none.

    Mostly that takes one Fetch of each leader. It takes more where batches are large, and where the first offsets hold
    no record.
    """
    with closing(_RecordTimes(asking, ranges, isolation_level)) as times:
        return await ask_leaders(asking, dict.fromkeys(ranges), times.ask)


class _RecordTimes:
    """Fetches from the leaders for ``record_times``; it knows from which offset to fetch each partition next."""

    def __init__(
        self, asking: Asking, ranges: Mapping[TopicPartition, tuple[int, int]], isolation_level: IsolationLevel
    ) -> None:
        self._asking, self._isolation_level = asking, isolation_level
        self._ends = {tp: until for tp, (_, until) in ranges.items()}
        self._positions = {tp: start for tp, (start, _) in ranges.items()}
        # A broker sends nothing of a partition whose next batch is larger than what was asked for, unless it is the
        # first.
        self._sizes = dict.fromkeys(ranges, _PARTITION_BYTES)
        # A few, which leaders share: each may have a decompressed batch in memory. Not that of ``asking``: opening a
        # batch may take seconds, and what reads the answers is not to wait behind it.
        self._threads: dict[int, OwnThread] = {}

    def close(self) -> None:
        """End the threads once they are done with what they were given."""
        for thread in self._threads.values():
            thread.close()

    async def ask(
        self, cluster: Cluster, node_id: int, asked: dict[TopicPartition, None]
    ) -> Mapping[TopicPartition, int | KafkaError | None]:
        wanted = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=min(_FETCH_BYTES, self._asking.cluster_client.config.room_for_records),
            isolation_level=isolation_code(self._isolation_level),
            topics=_fetch_topics(asked, self._positions, self._sizes),
        )
        response = await self._asking.broker(node_id, FetchRequest, always(wanted), _BY_NAME)
        if response.error_code != ErrorCode.NONE:
            raise broker_error(response.error_code, f"fetching from broker {node_id}")
        before = self._asked_for(asked)
        fetched = [(tp, data) for tp, data in _fetched(response) if tp in asked]
        answers = {tp: await self._answer(node_id, tp, data) for tp, data in fetched}
        answers |= await self._moved(
            cluster, node_id, [tp for tp, data in fetched if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE]
        )
        nothing = bool(answers) and all(found is _MORE for found in answers.values())
        if nothing and before == self._asked_for(asked):
            # The log may have been truncated since its end was asked for: what was there may come again.
            raise broker_error(ErrorCode.OFFSET_NOT_AVAILABLE, f"broker {node_id} sent no record of {sorted(asked)[0]}")
        return answers

    def _asked_for(self, asked: Iterable[TopicPartition]) -> list[tuple[int, int]]:
        return [(self._positions[tp], self._sizes[tp]) for tp in asked]

    async def _answer(self, node_id: int, tp: TopicPartition, data: PartitionData) -> int | KafkaError | None:
        position = self._positions[tp]
        if data.error_code != ErrorCode.NONE:
            return broker_error(data.error_code, f"fetching {tp} at {position} from broker {node_id}", needs="READ")
        try:
            look = await self._look_at(node_id, tp, data, position)
        except KafkaError as error:
            return error
        if look == (None, position):
            self._sizes[tp] = min(self._sizes[tp] * 16, _LARGEST_BATCH)
        self._positions[tp] = look.next_offset
        if look.next_offset >= self._ends[tp]:
            return None
        if look.timestamp is None:
            return _MORE
        return look.timestamp if look.timestamp >= 0 else None

    async def _look_at(self, node_id: int, tp: TopicPartition, data: PartitionData, offset: int) -> Look:
        """Return what ``first_record`` does: of a batch that is large, or turns out to be, in a thread.

        Raises RequestTimedOut at the deadline, and ConnectionFailed where the process can have no more threads.
        """
        config = self._asking.cluster_client.config

        def look(most: int) -> Look:
            return first_record(data, offset, topic=tp.topic, check_crcs=config.check_crcs, max_decompressed_bytes=most)

        limit = config.max_decompressed_batch_bytes
        if len(data.records or b"") <= _AT_ONCE_BYTES:
            with suppress(RecordTooLarge):  # which only an attempt shows: a few kB of compressed zeros are 100 MB
                return look(min(limit, _AT_ONCE_DECOMPRESSED))
        number = node_id % _MOST_THREADS
        if number not in self._threads:
            self._threads[number] = OwnThread("aiokc large batches")
        with anyio.move_on_after(self._asking.left):
            return await self._threads[number].run(partial(look, limit))
        raise self._asking.too_late(f"opening the batch of {tp} at offset {offset}", None)

    async def _moved(
        self, cluster: Cluster, node_id: int, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """Return the answers for partitions whose log began behind the position. Another reason has no answer here.

        Retention, or a DeleteRecords, has moved the beginning since it was asked for: the rest of the range counts.
        """
        if not partitions:
            return {}
        starts = await self._asking.lister.ask(
            node_id,
            dict.fromkeys(partitions, EARLIEST),
            timeout=self._asking.patience,
            isolation_level=self._isolation_level,
            cluster=cluster,
        )
        answers: dict[TopicPartition, KafkaError | None] = dict(starts.errors)
        for tp, start in starts.found.items():
            if start is not None and start.offset > self._positions[tp]:
                self._positions[tp] = start.offset
                answers[tp] = _MORE if start.offset < self._ends[tp] else None
        return answers


def _fetch_topics(
    asked: Mapping[TopicPartition, None], positions: Mapping[TopicPartition, int], sizes: Mapping[TopicPartition, int]
) -> list[FetchTopic]:
    topics: dict[str, list[FetchPartition]] = {}
    for tp in asked:
        topics.setdefault(tp.topic, []).append(
            FetchPartition(partition=tp.partition, fetch_offset=positions[tp], partition_max_bytes=sizes[tp])
        )
    return [FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()]


def _fetched(response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]]:
    return [
        (TopicPartition(topic.topic, data.partition_index), data)
        for topic in response.responses
        for data in topic.partitions
    ]
