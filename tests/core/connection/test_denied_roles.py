"""When a broker that denies to be what the others say is to be reached anew."""

from __future__ import annotations

from aiokc.core.connection.denied_roles import DeniedRoles
from aiokc.types import TopicPartition

T0 = TopicPartition("t", 0)


def reached_anew(*times: float, node_id: int = 1, denied: DeniedRoles | None = None) -> list[float]:
    """Return at which of the denials at these times the broker is to be reached anew."""
    roles = denied or DeniedRoles()
    return [now for now in times if roles.note_denied_role(node_id, now)]


def test_a_broker_that_denies_for_long_is_reached_anew_less_and_less_often() -> None:
    assert reached_anew(*map(float, range(200))) == [5.0, 15.0, 35.0, 75.0, 135.0, 195.0]


def test_denials_that_are_far_apart_are_of_elections() -> None:
    assert reached_anew(*(20.0 * number for number in range(100))) == []
    assert reached_anew(0.0, 4.0, 20.0, 24.0, 40.0) == []
    assert reached_anew(0.0, 6.0, 30.0, 34.0, 36.0) == [6.0, 36.0], "the next trouble begins with the shortest wait"


def test_each_broker_has_its_own_time() -> None:
    roles = DeniedRoles()
    assert reached_anew(0.0, 4.0, denied=roles) == []
    assert reached_anew(5.0, 9.0, node_id=2, denied=roles) == []
    assert reached_anew(9.5, denied=roles) == [9.5]


def test_a_leader_that_has_moved_denies_only_what_older_metadata_say() -> None:
    roles = DeniedRoles()
    assert [roles.note_denial(1, T0, version, 0.0) for version in (7, 7, 8, 9)] == [False, False, True, True]
    assert not roles.note_denial(1, T0, 10, 15.1), "another event"
    assert roles.note_denial(1, T0, 11, 20.0)
    assert not roles.note_denial(2, T0, 12, 31.0), "another leader"
    roles.keep(lambda node_id, tp: node_id == 2)
    assert roles.note_denial(2, T0, 13, 32.0)
    roles.keep(lambda node_id, tp: node_id == 3)
    assert not roles.note_denial(2, T0, 14, 33.0)
