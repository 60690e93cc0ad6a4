"""What a broker's answer, or its absence, does to a batch: stored, sent again, split, begun anew, or failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from ...error_codes import ErrorCode, error_name
from ...records.encoding.batch_builder import BATCH_OVERHEAD, OpenBatch
from ..connection.denials import PERMISSION_DENIALS
from .accumulator import RecordAccumulator
from .batch import ProducerBatch, Stored
from .failure import Cause, Failure, not_split, recreated
from .identity import after
from .partition_queue import PartitionQueue
from .verdicts import DOUBTED, RULES, Verdict, rule_of

_PASSED: Final = "a later batch is stored, so this one has no place in the partition any more"


class PartitionAnswer(NamedTuple):
    """What a Produce response says about one batch."""

    code: int
    base_offset: int = -1
    append_time: int = -1
    log_start_offset: int = -1
    text: str = ""
    records: Mapping[int, str] = {}

    def __str__(self) -> str:
        """For log lines: an answer may say something of each of thousands of records."""
        told = f"{error_name(self.code)} (base offset {self.base_offset}, log start offset {self.log_start_offset}"
        refused = f", {len(self.records):,} records refused" if self.records else ""
        return f"{told}{refused}){self.text and f': {self.text}'}"


def settle(
    accumulator: RecordAccumulator,
    batch: ProducerBatch,
    answer: PartitionAnswer,
    now: float,
    *,
    doubts_denials: bool = False,
) -> Verdict:
    """Do what the answer means for the batch; return the verdict. The answer comes once for each time it was sent.

    ``doubts_denials``: a denial may be due to the age of a token that was replaced since. The broker has stored
    nothing, and may do so the next time.
    """
    queue = accumulator.queue(batch.tp)
    rule = rule_of(answer.code) if answer.code else RULES[ErrorCode.NONE]
    if doubts_denials and answer.code in PERMISSION_DENIALS:
        rule = DOUBTED
    verdict = rule.verdict
    if batch not in queue.in_flight:
        return verdict  # all batches were ended meanwhile
    if verdict is Verdict.STORED or verdict is Verdict.DUPLICATE:
        base_offset = answer.base_offset if verdict is Verdict.STORED else -1
        settle_stored(accumulator, batch, base_offset, answer.append_time)
        return verdict
    batch.unclear = batch.unclear or rule.unclear or _is_appended(answer, verdict)
    batch.last_code, batch.last_text = answer.code, answer.text
    refused = Failure(Cause.REFUSED, answer.code, answer.text, harm=rule.harm, records=dict(answer.records))
    if batch.outcome is not None:  # it expired in flight
        _give_up(accumulator, queue, batch, refused)
    elif batch.topic_id != queue.topic_id:
        _give_up(accumulator, queue, batch, recreated())
    elif rule.verdict in (Verdict.RETRY, Verdict.REFRESH):
        _again(accumulator, queue, batch, now)
    elif rule.verdict is Verdict.SPLIT and batch.count > 1 and not batch.unclear:
        _begin_split(accumulator, queue, batch, now)
    elif rule.verdict in (Verdict.GAP, Verdict.NEW_EPOCH) and batch.is_numbered:
        _follow_sequences(accumulator, queue, batch, answer, refused, now)
    else:
        _give_up(accumulator, queue, batch, refused)
    return rule.verdict


def _is_appended(answer: PartitionAnswer, verdict: Verdict) -> bool:
    """Whether the leader has the batch in its log, and the next leader may have it, too, in spite of the error.

    1. With acks=all the leader appends the batch, and waits for the followers.
    2. It loses the partition, or the disk that the partition is on.
    3. It answers with the code of a leader that never had the batch, and the offset that the batch had got: Kafka's
       DelayedProduce replaces the error only. A refusal before an append carries -1.
    Only errors after which the batch is sent again come so. One that is too large was not appended, with any offset.
    """
    return answer.base_offset >= 0 and verdict in (Verdict.RETRY, Verdict.REFRESH)


def settle_stored(accumulator: RecordAccumulator, batch: ProducerBatch, base_offset: int, append_time: int) -> None:
    """Do what an answer means by which the batch is stored; -1: the answer does not say that."""
    queue = accumulator.queue(batch.tp)
    if batch in queue.in_flight:
        stored = Stored(base_offset if base_offset >= 0 else None, append_time if append_time >= 0 else None)
        accumulator.store(queue, batch, stored)


def unanswered(accumulator: RecordAccumulator, batch: ProducerBatch, text: str, now: float) -> None:
    """No answer will come: the connection broke, or the request took too long. The broker may have the batch."""
    settle(accumulator, batch, PartitionAnswer(ErrorCode.NETWORK_EXCEPTION, text=text), now)


def written(accumulator: RecordAccumulator, batch: ProducerBatch) -> None:
    """The batch was written to the connection, and the broker does not answer: acks=0."""
    queue = accumulator.queue(batch.tp)
    accumulator.store(queue, batch, Stored(None))


def _again(accumulator: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
    accumulator.put_back(queue, batch, now + accumulator.pause(batch.attempts))
    accumulator.counters.retries += 1


def _give_up(accumulator: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch, failure: Failure) -> None:
    queue.in_flight.pop(batch, None)
    accumulator.fail(queue, batch, failure)


def _follow_sequences(
    accumulator: RecordAccumulator,
    queue: PartitionQueue,
    batch: ProducerBatch,
    answer: PartitionAnswer,
    refused: Failure,
    now: float,
) -> None:
    """The broker expects another sequence, or knows another epoch, or does not know the producer id any more.

    A batch whose predecessor failed comes too early: it is sent again behind that one. Where its predecessor was
    acknowledged, or the id is unknown, the partition's sequences are lost (KIP-360).

    A batch that was passed over comes too late (KAFKA-15591):

    1. The broker forgets the producer, by producer.id.expiration.ms for instance. Two batches are in flight.
    2. It refuses the first, for too few replicas, and stores the second: of a producer that it does not know it takes
       any sequence.
    3. It expects what is behind the second from now on. No attempt will store the first, and elsewhere than in its
       place it must not be stored.
    """
    out_of_order = answer.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    comes_early = out_of_order and not queue.is_next(batch)
    forgot_nothing = answer.code == ErrorCode.UNKNOWN_PRODUCER_ID and answer.log_start_offset < 0
    was_passed = queue.has_passed(batch)
    if out_of_order and was_passed:
        _give_up(accumulator, queue, batch, replace(refused, text=answer.text or _PASSED))
    elif comes_early or forgot_nothing:
        _again(accumulator, queue, batch, now)
    elif accumulator.session.renumbers and not was_passed:
        queue.lost_sequence = True
        _again(accumulator, queue, batch, now)
    else:
        _give_up(accumulator, queue, batch, refused)


def _begin_split(accumulator: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch, now: float) -> None:
    """The broker finds the batch too large. It waits in its place until ``split_further`` has parts to put there.

    No other batch of the partition is sent before. Meanwhile it may expire, or fail, as any batch that waits.
    """
    accumulator.put_back(queue, batch, now)
    batch.closing = True
    accumulator.ratios.refused_as_too_large(batch.tp.topic)
    accumulator.splits.append(_split(accumulator, queue, batch))


def split_further(accumulator: RecordAccumulator) -> bool:
    """Go a step on with the batches that were too large; return whether there are more steps.

    All at once would hold the event loop: a microsecond for each record, for each batch of the answer. A batch's last
    step hands over its callbacks, all at once: 4 ms for ten thousand, where records have callbacks of their own.
    """
    splits = accumulator.splits
    if splits and next(splits[0], None) is None:
        splits.popleft()
    return bool(splits)


def _split(accumulator: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch) -> Iterator[ProducerBatch]:
    """Send the records as several batches, under the same sequences: the broker has definitely not stored them.

    Each step but the last one yields the batch. Where a step raises, the batch fails, and the others are not harmed:
    there is no memory for a second copy of its records.
    """
    try:
        yield from _put_in_parts(accumulator, queue, batch)
    except Exception as error:
        if batch.parts:  # they have its records by now
            raise
        queue.waiting.remove(batch)
        accumulator.fail(queue, batch, not_split(batch.tp, error))


def _put_in_parts(
    accumulator: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch
) -> Iterator[ProducerBatch]:
    if batch.closed is None:  # it has failed before the first step
        return
    closed = batch.closed
    # In halves at least, and by the size before compression: random bytes may be longer after it, and one part of the
    # whole batch would be refused like the batch, again and again.
    wanted = min(accumulator.options.batch_size, (closed.payload_size + BATCH_OVERHEAD) // 2)
    batches: list[OpenBatch] = []
    for so_far in closed.split(wanted):
        batches = so_far
        yield batch
        if batch.outcome is not None:  # it has expired, or the transaction was aborted
            return
    parts: list[ProducerBatch] = []
    sequence = batch.sequence
    for index, opened in enumerate(batches):
        part = ProducerBatch(batch.tp, (*batch.number, index), batch.created, opened)
        part.seal()
        part.urgent = batch.urgent
        part.identity, part.topic_id = batch.identity, batch.topic_id
        if batch.is_numbered:
            part.sequence, sequence = sequence, after(sequence, part.count)
        parts.append(part)
    accumulator.replace(queue, batch, parts)
