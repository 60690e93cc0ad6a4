"""The snapshot of the cluster, made from Metadata responses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from aiokc.core.cluster.occasion import Occasion
from aiokc.core.cluster.snapshot import Cluster, NewLeader, merge, why_unusable, with_leaders
from aiokc.core.cluster.unfollowed import without_old_topics
from aiokc.error_codes import ErrorCode
from aiokc.errors import MalformedResponse
from aiokc.types import Broker, TopicPartition
from aiokc.wire.messages.discovery import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ID, OTHER_ID = UUID(int=1), UUID(int=2)
REGULAR, LACKING, FOUND_WRONG = Occasion.REGULAR, Occasion.LACKING, Occasion.FOUND_WRONG


def partition(number: int, leader: int = 1, epoch: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=0,
        partition_index=number,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[2],
    )


def topic(name: str, *partitions: MetadataResponsePartition, **fields: Any) -> MetadataResponseTopic:
    return MetadataResponseTopic(**{"error_code": 0, "name": name, "partitions": list(partitions), **fields})


def response(*topics: MetadataResponseTopic, brokers: int = 2) -> MetadataResponse:
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"h{node}", port=9092) for node in range(1, brokers + 1)],
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
    )


def merged(
    old: Cluster, new: MetadataResponse, *, complete: bool = False, occasion: Occasion = FOUND_WRONG, every: int = 1
) -> Cluster:
    steps = merge(old, new, complete=complete, occasion=occasion, every=every)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Cluster = end.value
            return result


def test_leaders_epochs_and_counts() -> None:
    cluster = merged(Cluster(), response(topic("a", partition(0, 1, 5), partition(1, 2, 6)), topic("b", partition(0))))
    assert cluster.leader(TopicPartition("a", 1)) == Broker(2, "h2", 9092)
    assert cluster.leader_epoch(TopicPartition("a", 1)) == 6
    assert cluster.partition_counts(["a", "b", "c"]) == {"a": 2, "b": 1}
    assert cluster.partitions_of(["b", "a"]) == [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
    assert (cluster.version, cluster.cluster_id, cluster.controller_id) == (1, "c", 1)


def test_no_leader_and_an_unknown_leader_are_none() -> None:
    cluster = merged(Cluster(), response(topic("a", partition(0, leader=-1), partition(1, leader=9))))
    assert cluster.leader(TopicPartition("a", 0)) is None
    assert cluster.leader(TopicPartition("a", 1)) is None
    assert cluster.leader(TopicPartition("a", 7)) is None
    assert cluster.leader_epoch(TopicPartition("a", 7)) == -1


def test_other_topics_stay_unless_the_response_is_complete() -> None:
    first = merged(Cluster(), response(topic("a", partition(0)), topic("b", partition(0))))
    assert set(merged(first, response(topic("a", partition(0)))).topics) == {"a", "b"}
    assert set(merged(first, response(topic("a", partition(0))), complete=True).topics) == {"a"}


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    """KIP-320: brokers hear of an election one after the other; the response of one that has not yet is old news."""
    first = merged(Cluster(), response(topic("a", partition(0, leader=2, epoch=5))))
    late = merged(first, response(topic("a", partition(0, leader=1, epoch=4))))
    assert late.leader(TopicPartition("a", 0)) == Broker(2, "h2", 9092)
    newer = merged(late, response(topic("a", partition(0, leader=1, epoch=6))))
    assert newer.leader(TopicPartition("a", 0)) == Broker(1, "h1", 9092)


def epochs_after(*answers: int | None, occasion: Occasion = FOUND_WRONG) -> list[int]:
    """Return the leader epoch of a-0 after each of these responses; None: it is about other topics."""
    cluster, found = Cluster(), []
    for epoch in answers:
        named = [] if epoch is None else [topic("a", partition(0, epoch=epoch), topic_id=ID)]
        cluster = merged(cluster, response(*named, topic("b", partition(0))), occasion=occasion)
        found.append(cluster.leader_epoch(TopicPartition("a", 0)))
    return found


def test_a_leader_epoch_that_answers_name_again_and_again_is_believed_though_it_is_lower() -> None:
    """A cluster was restored from copies of its disks. Brokers refuse an epoch that they do not know."""
    assert epochs_after(5, *[3] * 10) == [5] * 10 + [3]
    assert epochs_after(5, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2) == [5] * 10 + [2]
    assert epochs_after(5, *[3] * 9, 5, *[3] * 9) == [5] * 20, "in a row"
    assert epochs_after(5, *[3] * 9, 6, *[5] * 9) == [5] * 10 + [6] * 10
    assert epochs_after(5, *[3] * 9, None, None, 3) == [5] * 12 + [3], "of those about the topic"
    assert epochs_after(5, *[3] * 10, *[2] * 9) == [5] * 10 + [3] * 10, "counted anew"


@pytest.mark.parametrize("other", [REGULAR, LACKING])
def test_a_client_that_is_well_believes_no_lower_epoch(other: Occasion) -> None:
    """It asks now and then, and maybe each time a broker that is cut off: that one leads what others lead by now."""
    assert epochs_after(5, *[3] * 100, occasion=other) == [5] * 101
    cluster = merged(Cluster(), response(topic("a", partition(0, epoch=5), topic_id=ID)))
    lower = response(topic("a", partition(0, epoch=3), topic_id=ID))
    for occasion in (FOUND_WRONG, other) * 9 + (FOUND_WRONG,):
        assert cluster.leader_epoch(TopicPartition("a", 0)) == 5
        cluster = merged(cluster, lower, occasion=occasion)
    assert cluster.leader_epoch(TopicPartition("a", 0)) == 3, "questions of other reasons count neither way"


@pytest.mark.parametrize("leader", [-1, 3], ids=["none", "one that is gone"])
def test_a_client_that_knows_of_no_leader_believes_a_lower_epoch(leader: int) -> None:
    """The last answer before the cluster was restored named none, or a broker that is not up behind it.

    So nothing that the client asks can be refused.
    """
    before = response(topic("a", partition(0, leader=leader, epoch=5), topic_id=ID), brokers=3)
    gone = response(topic("a", partition(0, leader=leader, epoch=5), topic_id=ID))
    cluster = merged(merged(Cluster(), before), gone)
    for _ in range(10):
        assert cluster.leader(TopicPartition("a", 0)) is None
        lower = response(topic("a", partition(0, leader=1, epoch=3), topic_id=ID))
        cluster = merged(cluster, lower, occasion=LACKING)
    assert cluster.leader(TopicPartition("a", 0)) == Broker(1, "h1", 9092)


def test_the_lower_epochs_of_a_topic_are_forgotten_with_it() -> None:
    cluster = merged(Cluster(), response(topic("a", partition(0, epoch=5), topic_id=ID)))
    cluster = merged(cluster, response(topic("a", partition(0, epoch=3), topic_id=ID)))
    assert cluster.lower == {("a", 0): 1}
    assert merged(cluster, response(topic("b", partition(0))), complete=True).lower == {}
    again = response(topic("a", partition(0, epoch=1), topic_id=OTHER_ID))
    assert merged(cluster, again).lower == {}, "recreated"


def test_a_recreated_topic_starts_its_epochs_anew() -> None:
    """KIP-516: deleted and created under the same name, it has another id, and leader epoch 0 again."""
    first = merged(Cluster(), response(topic("a", partition(0, leader=2, epoch=5), topic_id=ID)))
    again = merged(first, response(topic("a", partition(0, leader=1, epoch=0), topic_id=OTHER_ID)))
    assert again.leader(TopicPartition("a", 0)) == Broker(1, "h1", 9092)
    assert again.topic_id("a") == OTHER_ID


def ids_after(*answers: UUID | None, complete: bool = False, occasion: Occasion = FOUND_WRONG) -> list[UUID | None]:
    """Return the id of topic "a" after each of these responses; None: it says that there is no such topic."""
    cluster, found = Cluster(), []
    for topic_id in answers:
        if topic_id is None:
            gone = [] if complete else [topic("a", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
            answer = response(*gone)
        else:
            answer = response(topic("a", partition(0), topic_id=topic_id))
        cluster = merged(cluster, answer, complete=complete, occasion=occasion)
        found.append(cluster.topic_id("a"))
    return found


@pytest.mark.parametrize("complete", [False, True])
def test_a_recreated_topic_never_becomes_the_old_one_again(complete: bool) -> None:
    """Brokers hear of it one after the other, and ids do not come back: a response with an old id is old news."""
    assert ids_after(ID, OTHER_ID, ID, OTHER_ID, complete=complete) == [ID, OTHER_ID, OTHER_ID, OTHER_ID]
    assert ids_after(ID, None, OTHER_ID, ID, complete=complete) == [ID, None, OTHER_ID, OTHER_ID], "gone in between"
    assert ids_after(ID, OTHER_ID, None, ID, complete=complete) == [ID, OTHER_ID, None, None], "gone at the end"
    third = UUID(int=3)
    assert ids_after(ID, OTHER_ID, third, ID, OTHER_ID, complete=complete)[2:] == [third] * 3


@pytest.mark.parametrize("complete", [False, True])
def test_a_topic_that_a_broker_has_not_heard_of_yet_is_the_same_afterwards(complete: bool) -> None:
    assert ids_after(ID, None, ID, complete=complete) == [ID, None, ID]
    assert ids_after(ID, OTHER_ID, None, OTHER_ID, complete=complete)[2:] == [None, OTHER_ID]


def test_what_an_old_answer_says_of_a_topic_is_ignored() -> None:
    first = merged(Cluster(), response(topic("a", partition(0, leader=2, epoch=5), topic_id=ID)))
    again = merged(first, response(topic("a", partition(0, leader=1, epoch=0), partition(1), topic_id=OTHER_ID)))
    late = merged(again, response(topic("a", partition(0, leader=2, epoch=6), topic_id=ID)))
    assert late.topics == again.topics
    assert late.version == again.version + 1


def test_a_client_that_took_the_old_topic_for_the_new_one_finds_its_way_back() -> None:
    """It began with a broker that knew the new topic, and then asked one that did not."""
    found = ids_after(OTHER_ID, ID, *[OTHER_ID] * 30)
    assert found[1] == ID
    assert 5 <= found[1:].index(OTHER_ID) <= 20, "not by one answer alone, and not for ever"
    assert set(found[1 + found[1:].index(OTHER_ID) :]) == {OTHER_ID}
    answers = [ID, *[OTHER_ID] * 4] * 10
    assert set(ids_after(OTHER_ID, *answers)[1:]) == {ID}, "others say otherwise again and again"


def test_a_client_that_reads_the_new_topic_never_goes_back_to_the_old_one() -> None:
    """It asks now and then, and maybe each time a broker that is cut off, and has never heard of the new topic."""
    assert ids_after(ID, OTHER_ID, *[ID] * 100, occasion=REGULAR)[1:] == [OTHER_ID] * 101


@pytest.mark.parametrize("complete", [False, True])
def test_a_client_that_lacks_a_leader_or_a_partition_of_the_old_topic_finds_the_new_one(complete: bool) -> None:
    """Its broker is gone, or the new topic has more partitions. Nothing is sent, so nothing is refused."""
    newer = response(topic("a", partition(0), partition(1), topic_id=OTHER_ID))
    older = response(topic("a", partition(0, leader=-1), topic_id=ID))
    cluster = merged(merged(Cluster(), newer), older, complete=complete, occasion=REGULAR)
    for occasion in (LACKING, REGULAR) * 10:
        assert cluster.topic_id("a") == ID
        cluster = merged(cluster, newer, complete=complete, occasion=occasion)
        if cluster.topic_id("a") == OTHER_ID:
            break
    assert cluster.leader(TopicPartition("a", 1)) == Broker(1, "h1", 9092)


def test_a_client_that_lacks_the_topic_believes_a_former_id() -> None:
    """It heard of the topic by its newer id, by its older one, and then that there is none: nothing can be refused."""
    found = ids_after(OTHER_ID, ID, None, *[OTHER_ID] * 10, occasion=REGULAR)
    assert found == [OTHER_ID, ID, *[None] * 10, OTHER_ID]


def test_what_is_remembered_of_old_ids_is_bounded() -> None:
    cluster = Cluster()
    for number in range(1, 100):
        cluster = merged(cluster, response(topic("a", partition(0), topic_id=UUID(int=number))))
    assert len(cluster.former["a"].ids) <= 10
    many = [topic(f"t{number}", partition(0), topic_id=UUID(int=number + 1)) for number in range(3000)]
    cluster = merged(merged(cluster, response(*many), complete=True), response(), complete=True)
    assert 0 < len(cluster.former) <= 1000


def test_errors_are_kept_by_topic_until_they_pass() -> None:
    unknown = topic("a", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    first = merged(merged(Cluster(), response(topic("a", partition(0)))), response(unknown))
    assert first.errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "a" not in first.topics, "it was deleted"
    second = merged(first, response(topic("a", partition(0))))
    assert second.errors == {}
    assert "a" in second.topics


def test_of_topics_that_nobody_follows_a_thousand_stay() -> None:
    """A producer whose topics live shortly. Those stay that brokers have told of last."""
    cluster = Cluster()
    for number in range(1100):
        cluster = merged(
            cluster, response(topic(f"t{number}", partition(0)), topic("followed", partition(0)), brokers=1)
        )
        cluster = merged(cluster, response(topic("by-id", partition(0), topic_id=ID)) if number == 0 else response())
    cluster = merged(cluster, response(topic("t7", partition(0))))
    left = without_old_topics(cluster, {"followed"}, {ID})
    assert {"followed", "by-id", "t7"} < left.topics.keys()
    assert len(left.topics) == 1002
    assert "t100" not in left.topics
    assert "t101" in left.topics
    assert without_old_topics(left, {"followed"}, {ID}) is left
    assert without_old_topics(cluster, None, ()) is cluster
    complete = replace(cluster, complete=True)  # a topic that it lacks does not exist
    assert without_old_topics(complete, {"followed"}, ()) is complete


def test_a_topic_whose_leaders_are_being_elected_stays_known() -> None:
    first = merged(Cluster(), response(topic("a", partition(0))))
    second = merged(first, response(topic("a", error_code=ErrorCode.LEADER_NOT_AVAILABLE)))
    assert "a" in second.topics


def test_a_partition_that_an_answer_leaves_out_stays_for_as_long_as_the_topic_has_its_id() -> None:
    first = merged(Cluster(), response(topic("a", partition(0), partition(1), partition(2), topic_id=ID)))
    assert not first.partial
    for numbers in ([0, 2], [0, 1], []):
        partial = merged(first, response(topic("a", *map(partition, numbers), topic_id=ID)))
        assert partial.topics["a"] is first.topics["a"]
        assert partial.partial == {"a"}
        assert merged(partial, response()).partial == {"a"}
        assert not merged(partial, response(topic("a", *map(partition, range(3)), topic_id=ID))).partial
        assert not merged(partial, response(topic("b", partition(0))), complete=True).partial
    recreated = merged(first, response(topic("a", partition(0), topic_id=OTHER_ID)))
    assert (len(recreated.topics["a"].partitions), recreated.partial) == (1, frozenset())


@pytest.mark.parametrize(
    ("numbers", "count", "is_partial"),
    [
        ([0, 1], 2, False),
        ([], 0, False),
        ([1], 2, True),
        ([0, 2], 3, True),
        ([5, 0], 6, True),
        ([0, 1 << 30], 2, False),
    ],
)
def test_a_topic_has_its_partitions_where_some_of_them_are_not_known(
    numbers: list[int], count: int, is_partial: bool
) -> None:
    cluster = merged(Cluster(), response(topic("a", *map(partition, numbers))))  # before Kafka 2.8 topics have no ids
    assert cluster.partition_counts(["a"]) == {"a": count}
    assert ("a" in cluster.partial) == is_partial


def test_merging_gives_way() -> None:
    steps = list(merge(Cluster(), response(topic("a", *map(partition, range(100)))), complete=True, every=10))
    assert len(steps) == 10


def test_merging_gives_way_to_topics_without_partitions_as_well() -> None:
    steps = list(merge(Cluster(), response(*(topic(f"t{number}") for number in range(100))), complete=True, every=10))
    assert len(steps) == 10


@pytest.mark.parametrize("name", ["a\n2026-11-28 ERROR forged", "a\x1b[2J", "a" * 250])
def test_what_no_topic_can_be_called_is_left_out_but_its_error_is_told(name: str) -> None:
    assert merged(Cluster(), response(topic(name, partition(0)), topic("a", partition(0)))).topics.keys() == {"a"}
    refused = topic(name, error_code=int(ErrorCode.INVALID_TOPIC_EXCEPTION))
    assert merged(Cluster(), response(refused)).errors == {name: ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_an_answer_with_more_brokers_than_any_cluster_has_is_unusable() -> None:
    assert why_unusable("broker 1", response(brokers=10_000)) is None
    error = why_unusable("broker 1", response(brokers=10_001))
    assert isinstance(error, MalformedResponse)
    assert "broker 1: its answer to Metadata names 10,001 brokers" in str(error)


def test_a_topic_that_has_not_changed_is_the_same_object() -> None:
    """So its partitions need not be compared again, and of what has not changed, no second copy is kept."""
    first = merged(Cluster(), response(topic("a", partition(0), partition(1), topic_id=ID), topic("b", partition(0))))
    again = response(
        topic("a", partition(0), partition(1), topic_id=UUID(int=ID.int)), topic("b", partition(0, 2, epoch=1))
    )
    second = merged(first, again, complete=True)
    assert second.version == first.version + 1
    assert second.topics["a"] is first.topics["a"]
    assert second.topics["b"] is not first.topics["b"]
    longer = merged(second, response(topic("a", partition(0), partition(1), partition(2), topic_id=ID)))
    assert longer.topics["a"].partitions[1] is first.topics["a"].partitions[1]
    assert longer.topics["a"].topic_id is first.topics["a"].topic_id
    assert len(longer.topics["a"].partitions) == 3
    internal = merged(longer, response(topic("a", partition(0), partition(1), partition(2), is_internal=True)))
    assert (internal.topics["a"].is_internal, internal.topics["a"].topic_id) == (True, None)


@pytest.mark.parametrize(
    ("epoch", "said_of", "counts"),
    [(2, ID, True), (1, ID, False), (2, OTHER_ID, False), (2, None, False)],
    ids=["newer", "known", "other-topic", "no-topic"],
)
def test_a_leader_that_a_broker_names_counts_for_the_topic_that_it_spoke_of(
    epoch: int, said_of: UUID | None, counts: bool
) -> None:
    """KIP-951; a recreated topic has the same name, and its epochs start anew (KIP-516)."""
    old = merged(Cluster(), response(topic("a", partition(0, leader=1, epoch=1), topic_id=ID)))
    zero = TopicPartition("a", 0)
    new, moved = with_leaders(old, {zero: NewLeader(2, epoch, said_of)}, {})
    assert moved == ({zero} if counts else set())
    assert new.leader(zero) == Broker(2 if counts else 1, "h2" if counts else "h1", 9092)
    assert (new.leader_epoch(zero), old.leader_epoch(zero)) == (2 if counts else 1, 1)


@pytest.mark.parametrize(
    ("leader", "address", "counts"),
    [
        (NewLeader(3, 2, ID), Broker(3, "h3", 9093), True),
        (NewLeader(3, (1 << 31) - 1, ID), Broker(3, "h3", 9093), False),
        (NewLeader(3, -(1 << 31), ID), Broker(3, "h3", 9093), False),
        (NewLeader(3, 2, ID), Broker(3, "", 9093), False),
        (NewLeader(3, 2, ID), Broker(3, "h3", 0), False),
        (NewLeader(3, 2, ID), Broker(3, "h3", 70_000), False),
        (NewLeader(3, 2, ID), Broker(3, "h3", -5), False),
        (NewLeader(4, 2, ID), Broker(3, "h3", 9093), False),
        (NewLeader(-3, 2, ID), Broker(-3, "h3", 9093), False),
    ],
)
def test_what_a_broker_makes_up_does_not_count(leader: NewLeader, address: Broker, counts: bool) -> None:
    """An epoch far ahead would make the metadata's leader of that partition look old for ever."""
    old = merged(Cluster(), response(topic("a", partition(0, leader=1, epoch=1), topic_id=ID)))
    zero = TopicPartition("a", 0)
    new, moved = with_leaders(old, {zero: leader}, {address.node_id: address})
    assert moved == ({zero} if counts else set())
    assert (3 in new.brokers) == counts


def test_a_broker_with_an_id_below_zero_is_none() -> None:
    answer = response(topic("t", partition(0, leader=-7), partition(1)))
    answer.brokers.append(MetadataResponseBroker(node_id=-7, host="b", port=9092))
    cluster = merged(Cluster(), answer)
    assert min(cluster.brokers) >= 0
    assert cluster.leader(TopicPartition("t", 0)) is None
    assert cluster.leader(TopicPartition("t", 1)) is not None


def test_a_broker_and_an_epoch_may_have_the_number_zero() -> None:
    cluster = merged(
        Cluster(),
        MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="h0", port=9092)],
            topics=[topic("a", partition(0, leader=0, epoch=0), partition(1, leader=0, epoch=-1))],
        ),
    )
    assert cluster.leader(TopicPartition("a", 0)) == Broker(0, "h0", 9092)
    assert [cluster.leader_epoch(TopicPartition("a", number)) for number in (0, 1)] == [0, -1]


@pytest.mark.parametrize("nowhere", [None, ""])
def test_brokers_that_name_no_rack_have_none(nowhere: str | None) -> None:
    def racks(*racks: str | None) -> dict[TopicPartition, frozenset[str]]:
        told = response(topic("a", partition(0)))
        for broker, rack in zip(told.brokers, racks, strict=True):
            broker.rack = rack
        return merged(Cluster(), told).replica_racks(["a"])

    assert racks(nowhere, nowhere) == {}
    assert racks("r1", nowhere) == {TopicPartition("a", 0): frozenset({"r1"})}


@pytest.mark.parametrize("complete", [True, False])
def test_an_old_id_brings_no_topic_back(complete: bool) -> None:
    """The topic was recreated, and deleted; a lagging broker still names its first id."""
    cluster = Cluster()
    for topic_id in (ID, OTHER_ID):
        cluster = merged(cluster, response(topic("a", partition(0), topic_id=topic_id)), complete=complete)
    gone = [] if complete else [topic("a", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    cluster = merged(cluster, response(*gone), complete=complete)
    assert "a" not in cluster.topics
    cluster = merged(cluster, response(topic("a", partition(0), topic_id=ID)), complete=complete)
    assert "a" not in cluster.topics
