"""Fetch sessions (KIP-227): what each request tells the broker, and what a response changes; the model is the test
broker.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.fetch.session import FetchSession, FetchTarget, SessionRequest
from aiokc.error_codes import ErrorCode
from aiokc.testing.log.fetch_sessions import FetchSessions, PartitionKey
from aiokc.testing.refusal import Refusal
from aiokc.types import TopicPartition
from aiokc.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
ID_A, ID_B, ID_A2 = UUID(int=10), UUID(int=11), UUID(int=12)
IDS = {"a": ID_A, "b": ID_B}


def target(tp: TopicPartition, offset: int = 0, topic_id: UUID | None = None, *, named: bool = False) -> FetchTarget:
    return FetchTarget(tp, 1, offset, 0, -1, None if named else topic_id or IDS[tp.topic])


def wanted(*targets: FetchTarget) -> dict[TopicPartition, FetchTarget]:
    return {one.tp: one for one in targets}


def answer(*partitions: tuple[TopicPartition, UUID], session_id: int = 7, **fields: Any) -> FetchResponse:
    responses = [
        FetchableTopicResponse(
            topic_id=topic_id,
            partitions=[
                PartitionData(
                    partition_index=tp.partition,
                    error_code=0,
                    high_watermark=5,
                    log_start_offset=1,
                    aborted_transactions=None,
                    records=None,
                )
            ],
        )
        for tp, topic_id in partitions
    ]
    return FetchResponse(session_id=session_id, responses=responses, **fields)


def opened(*targets: FetchTarget) -> FetchSession:
    session = FetchSession()
    session.request(wanted(*targets))
    assert session.answered(answer(*((one.tp, one.topic_id or UUID(int=0)) for one in targets))) is not None
    return session


def said(request: SessionRequest) -> tuple[list[TopicPartition], list[TopicPartition]]:
    return [one.tp for one in request.asked], [one.tp for one in request.forgotten]


def test_the_first_request_is_full_and_the_next_has_changes_only() -> None:
    session = FetchSession()
    first = session.request(wanted(target(A0), target(B0)))
    assert (first.session_id, first.epoch, said(first)) == (0, 0, ([A0, B0], []))
    answers = session.answered(answer((A0, ID_A), (B0, ID_B)))
    assert answers is not None
    assert [one.tp for one, _ in answers] == [A0, B0]
    session.changed([A0, A1, B0])
    second = session.request(wanted(target(A0), target(A1, 3)))
    assert (second.session_id, second.epoch, said(second)) == (7, 1, ([A1], [B0]))


def test_what_the_broker_leaves_out_has_not_changed() -> None:
    session = opened(target(A0), target(B0))
    session.request(wanted(target(A0), target(B0)))
    assert session.answered(answer()) == []
    session.request(wanted(target(A0), target(B0)))
    answers = session.answered(answer((B0, ID_B)))
    assert answers is not None
    assert [one.tp for one, _ in answers] == [B0]


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_session_that_is_no_good_is_closed_and_another_one_opened(code: int, session_id: int) -> None:
    session = opened(target(A0))
    session.request(wanted(target(A0)))
    assert session.answered(answer(session_id=0, error_code=code)) is None
    assert not session.is_refused, "once may happen: the next request goes out at once"
    again = session.request(wanted(target(A0)))
    assert (again.session_id, again.epoch, said(again)) == (session_id, 0, ([A0], []))
    assert session.answered(answer(session_id=0, error_code=code)) is None
    assert session.is_refused, "twice in a row is to be waited for"


def test_after_a_missing_answer_the_next_request_is_full() -> None:
    session = opened(target(A0), target(B0))
    session.changed([B0])
    session.request(wanted(target(A0)))
    session.failed()
    again = session.request(wanted(target(A0), target(B0)))
    assert (again.session_id, again.epoch, said(again)) == (7, 0, ([A0, B0], []))


def test_a_broker_without_sessions_gets_full_requests_for_ever() -> None:
    session = FetchSession()
    for _ in range(3):
        request = session.request(wanted(target(A0), target(B0)))
        assert (request.session_id, request.epoch, said(request)) == (0, 0, ([A0, B0], []))
        assert session.answered(answer((A0, ID_A), (B0, ID_B), session_id=0)) is not None


def test_where_no_session_is_asked_for_the_broker_opens_none() -> None:
    session = FetchSession(wished=False)
    for offset in range(3):
        parts = [TopicPartition("a", number) for number in range(600)]
        request = session.request(wanted(*(target(tp, offset) for tp in parts)))
        assert (request.session_id, request.epoch, said(request)) == (0, -1, (parts, []))
        assert not request.more
        assert session.answered(answer(*((tp, ID_A) for tp in parts), session_id=0)) is not None
        assert session.closing() is None


def test_a_session_that_the_broker_ends_with_its_answer_keeps_the_answer() -> None:
    session = opened(target(A0))
    session.request(wanted(target(A0)))
    assert session.answered(answer((A0, ID_A), session_id=0)) is not None
    assert session.is_full


@pytest.mark.parametrize(
    "wrong",
    [
        answer((A1, ID_A)),
        answer((A0, ID_B)),
        answer((A0, ID_A), session_id=8),
    ],
    ids=["another partition", "another topic id", "another session"],
)
def test_an_answer_to_another_request_is_ignored(wrong: FetchResponse) -> None:
    session = opened(target(A0))
    session.request(wanted(target(A0)))
    assert session.answered(wrong) is None
    assert session.is_full


def test_a_full_answer_must_be_complete() -> None:
    session = FetchSession()
    session.request(wanted(target(A0), target(B0)))
    assert session.answered(answer((A0, ID_A))) is None
    assert session.is_refused


def test_a_recreated_topic_is_forgotten_by_its_old_id() -> None:
    session = opened(target(A0), target(B0))
    session.changed([A0])
    request = session.request(wanted(target(A0, topic_id=ID_A2), target(B0)))
    (forgotten,) = request.forgotten_topics(13)
    assert (forgotten.topic_id, forgotten.partitions) == (ID_A, [0])
    assert [topic.topic_id for topic in request.topics(13, 1)] == [ID_A2]
    assert request.forgotten_topics(12) == [], "by name it would forget what the same request asks for"
    assert session.marks.keys() == {B0}, "what was said of the old one is not said of the new one"
    assert session.answered(answer((A0, ID_A))) is None, "what comes of the old one is not believed"


def test_a_session_by_names_is_left_when_the_ids_are_known() -> None:
    """A rolling upgrade: first the brokers know no topic ids, then they do (KIP-516)."""
    session = FetchSession()
    first = session.request(wanted(target(A0, named=True), target(B0)))
    assert (first.by_id, first.max_version) == (False, 12)
    assert [topic.topic for topic in first.topics(12, 1)] == ["a", "b"]
    named = answer((A0, UUID(int=0)), (B0, UUID(int=0)))
    named.responses[0].topic, named.responses[1].topic = "a", "b"
    assert session.answered(named) is not None
    session.changed([A0])
    second = session.request(wanted(target(A0), target(B0)))
    assert (second.by_id, second.epoch, said(second)) == (True, 0, ([A0, B0], []))


def test_a_partition_without_id_ends_a_session_by_ids() -> None:
    session = opened(target(A0))
    session.changed([B0])
    request = session.request(wanted(target(A0), target(B0, named=True)))
    assert (request.by_id, request.session_id, request.epoch) == (False, 7, 0)


def test_a_full_request_that_is_throttled_is_answered_with_nothing_and_made_again() -> None:
    """KIP-219: over its quota a client gets no partitions, and no session."""
    session = opened(target(A0))
    session.failed()
    request = session.request(wanted(target(A0), target(B0)))
    assert (request.session_id, request.epoch) == (7, 0)
    for _ in range(2):
        assert session.answered(answer(session_id=0, throttle_time_ms=50)) == []
        assert not session.is_refused
        assert session.closing() is None, "the full request closed the one that it named"
        request = session.request(wanted(target(A0), target(B0)))
        assert (request.session_id, request.epoch, said(request)) == (0, 0, ([A0, B0], []))
    assert session.answered(answer((A0, ID_A), (B0, ID_B), throttle_time_ms=50)) is not None
    assert session.request(wanted(target(A0), target(B0))).epoch == 1


@pytest.mark.parametrize(("session_id", "throttle"), [(0, 0), (8, 50)], ids=["not-throttled", "with-a-session"])
def test_no_other_full_answer_may_leave_partitions_out(session_id: int, throttle: int) -> None:
    session = FetchSession()
    session.request(wanted(target(A0)))
    assert session.answered(answer(session_id=session_id, throttle_time_ms=throttle)) is None


def test_many_partitions_join_a_session_250_at_a_time() -> None:
    """A request of ten thousand would hold the loop."""
    many = wanted(*(target(TopicPartition("a", number)) for number in range(600)))
    session, known = FetchSession(), 0
    for expected in (250, 250, 100):
        request = session.request(many)
        known += expected
        assert (len(request.asked), request.more) == (expected, known < 600)
        assert session.answered(answer(*((one.tp, ID_A) for one in request.asked))) is not None
    assert said(session.request(many)) == ([], [])


def test_what_changed_and_does_not_fit_is_forgotten_until_it_does() -> None:
    """Otherwise the broker would go on sending from the offset asked for last, which is buffered by now."""
    many = [target(TopicPartition("a", number)) for number in range(300)]
    session = FetchSession()
    for _ in range(2):
        request = session.request(wanted(*many))
        session.answered(answer(*((one.tp, ID_A) for one in request.asked)))
    moved = [one._replace(offset=5) for one in many]
    session.changed(one.tp for one in moved)
    request = session.request(wanted(*moved))
    assert (len(request.asked), len(request.forgotten), request.more) == (250, 50, True)
    session.answered(answer())
    request = session.request(wanted(*moved))
    assert (len(request.asked), len(request.forgotten), request.more) == (50, 0, False)
    assert session.known == wanted(*moved)


def test_rather_than_name_thousands_to_forget_a_session_is_opened_anew() -> None:
    """The room for reading ahead runs out, and a call waits for only one partition. To name all others as forgotten
    would hold the loop as long as it would to ask for them all.
    """
    many = [target(TopicPartition("a", number)) for number in range(1_500)]
    session = FetchSession()
    for _ in range(6):
        request = session.request(wanted(*many))
        session.answered(answer(*((one.tp, ID_A) for one in request.asked)))
    session.changed(one.tp for one in many)
    request = session.request(wanted(many[7]))
    assert (request.session_id, request.epoch, request.more) == (7, 0, False), "a new session, in the place of the old"
    assert (request.asked, request.forgotten) == ([many[7]], [])
    session.answered(answer((many[7].tp, ID_A)))
    session.changed(one.tp for one in many)
    assert len(session.request(wanted(*many)).asked) == 250, "the others come back by portions"


def test_the_last_epoch_travels_where_the_version_has_it() -> None:
    session = FetchSession()
    request = session.request(wanted(target(A0)._replace(last_epoch=4)))
    assert request.topics(12, 1)[0].partitions[0].last_fetched_epoch == 4
    assert request.topics(11, 1)[0].partitions[0].last_fetched_epoch == -1


def test_marks_are_remembered_while_the_broker_repeats_none() -> None:
    session = opened(target(A0))
    session.changed([A0])
    session.request(wanted(target(A0)._replace(token=2)))
    assert session.marks[A0][0] == 5, "the high watermark"
    session.answered(answer())
    session.changed([A0])
    session.request(wanted())
    assert A0 not in session.marks


# Against the test broker's sessions: whatever happens, both sides mean the same partitions at the same offsets.

PARTITIONS = [TopicPartition(topic, number) for topic in "ab" for number in range(3)]
STEPS = st.tuples(
    st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 3)),
    st.sampled_from(["answered", "answered", "answered", "lost answer", "lost request", "forgotten", "new ids"]),
)


def _key(topic: object) -> UUID:
    assert isinstance(topic, FetchTopic | ForgottenTopic)
    return topic.topic_id


def _on_the_wire(request: SessionRequest) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_id=request.session_id,
        session_epoch=request.epoch,
        topics=request.topics(13, 1),
        forgotten_topics_data=request.forgotten_topics(13),
    )


def _data(key: PartitionKey, asked: FetchPartition) -> tuple[PartitionKey, PartitionData]:
    return key, PartitionData(
        partition_index=key[1],
        error_code=0,
        high_watermark=asked.fetch_offset,
        aborted_transactions=None,
        records=None,
    )


def _serve(broker: FetchSessions, request: FetchRequest) -> FetchResponse:
    try:
        session, goes_on = broker.open(request, _key)
    except Refusal as refusal:
        return FetchResponse(error_code=refusal.code, responses=[])
    asked = {(topic.topic_id, one.partition): one for topic in request.topics for one in topic.partitions}
    everything = [_data(key, one) for key, one in (session.partitions if session else asked).items()]
    answers = session.news(everything) if session else everything
    return FetchResponse(
        session_id=session.session_id if session else 0,
        responses=[
            FetchableTopicResponse(topic_id=cast(UUID, key[0]), partitions=[data])
            for key, data in (answers if goes_on else everything)
        ],
    )


@given(st.lists(STEPS, min_size=1, max_size=12), st.integers(0, 2))
def test_both_sides_mean_the_same(steps: list[tuple[dict[TopicPartition, int], str]], slots: int) -> None:
    broker, session = FetchSessions(Random(0), slots), FetchSession()
    ids, serial = dict(IDS), 100
    before: dict[TopicPartition, FetchTarget] = {}
    for offsets, outcome in steps:
        if outcome == "new ids":
            ids["a"], serial = UUID(int=serial), serial + 1
        now = wanted(*(target(tp, offset, ids[tp.topic]) for tp, offset in offsets.items())) or before
        session.changed(tp for tp in now.keys() | before.keys() if now.get(tp) != before.get(tp))
        before = now
        if not now:
            continue
        if outcome == "forgotten":
            broker.clear()
        for _ in range(3):  # a refusal, a new session
            request = session.request(now)
            assert not request.more
            if outcome == "lost request":
                session.failed()
                break
            response = _serve(broker, _on_the_wire(request))
            if outcome == "lost answer":
                session.failed()
                break
            if session.answered(response) is not None:
                assert session.known == now
                if response.session_id:
                    served = broker._sessions[response.session_id].partitions
                    assert {(key, one.fetch_offset) for key, one in served.items()} == {
                        ((one.topic_id, one.tp.partition), one.offset) for one in now.values()
                    }
                break
        else:
            pytest.fail("three requests in a row counted for nothing")


def test_the_epoch_begins_again_at_one() -> None:
    session = opened(target(A0))
    session._epoch = 0x7FFF_FFFF
    assert session.request(wanted(target(A0))).epoch == 0x7FFF_FFFF
    session.answered(answer())
    assert session.request(wanted(target(A0))).epoch == 1


def test_a_partition_that_is_given_up_before_it_was_asked_for_is_never_asked_for() -> None:
    """Of many partitions a session asks for some at a time: the others wait for the next requests."""
    many = [target(TopicPartition("a", number)) for number in range(600)]
    session = FetchSession()
    first = session.request(wanted(*many))
    assert first.more
    assert session.answered(answer(*((one.tp, ID_A) for one in first.asked))) is not None
    for one in many[300:]:
        session.change(one.tp)
    told: list[TopicPartition] = [one.tp for one in first.asked]
    while True:
        request = session.request(wanted(*many[:300]))
        told += [one.tp for one in request.asked]
        if not request.more:
            break
        assert session.answered(answer(*((one.tp, ID_A) for one in request.asked))) is not None
    assert told == [one.tp for one in many[:300]]


@pytest.mark.parametrize("recreated", [False, True])
def test_the_names_of_topics_that_were_read_for_a_while_go(recreated: bool) -> None:
    """One session lasts for months. Its topics come and go, or are created again under the same name."""
    session = opened(target(A0))
    full = 0
    for number in range(10_000):
        one = target(B0 if recreated else TopicPartition(f"t{number}", 0), topic_id=UUID(int=100 + number))
        session.change(one.tp)
        request = session.request(wanted(target(A0), one))
        full += request.epoch == 0
        asked = [(each.tp, each.topic_id or UUID(int=0)) for each in request.asked]
        assert session.answered(answer(*asked)) is not None
        if not recreated:
            session.change(one.tp)
        assert len(session._names) <= 1_100
    assert 0 < full < 20
