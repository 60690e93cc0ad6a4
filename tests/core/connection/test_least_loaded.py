from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.connection.least_loaded import NodeView, candidates, least_loaded


def chosen(*nodes: NodeView, tried: frozenset[int] = frozenset(), now: float = 100.0) -> int | None:
    return least_loaded(nodes, tried, now=now)


def test_no_node_no_choice() -> None:
    assert chosen() is None


def test_a_connected_node_comes_before_one_to_connect_to() -> None:
    assert chosen(NodeView(1), NodeView(2, connected=True, in_flight=3)) == 2


def test_the_connected_node_with_the_fewest_requests_in_flight() -> None:
    assert chosen(NodeView(1, connected=True, in_flight=2), NodeView(2, connected=True, in_flight=1)) == 2


def test_a_throttled_node_comes_after_one_to_connect_to() -> None:
    assert chosen(NodeView(1, connected=True, muted_until=101.0), NodeView(2)) == 2
    assert chosen(NodeView(1, connected=True, muted_until=99.0), NodeView(2)) == 1


def test_a_node_to_ask_rather_not_comes_before_one_that_is_throttled_or_has_failed_only() -> None:
    told = NodeView(1, connected=True)
    for other, first in (
        (NodeView(2), 2),
        (NodeView(2, connecting=True), 2),
        (NodeView(2, muted_until=101.0, connected=True), 1),
        (NodeView(2, failed=True), 1),
    ):
        assert least_loaded([told, other], set(), now=100.0, rather_not=[1]) == first
    assert least_loaded([told], set(), now=100.0, rather_not=[1]) == 1


def test_of_nodes_to_ask_rather_not_the_first_comes_first_however_busy_it_is() -> None:
    """One that is cut off leads nothing, so no Fetch is in flight to it: it would be asked for ever."""
    busy, idle = NodeView(1, connected=True, in_flight=1), NodeView(2, connected=True)
    assert least_loaded([busy, idle], set(), now=100.0, rather_not=[1, 2]) == 1
    assert least_loaded([busy, idle], set(), now=100.0, rather_not=[2, 1]) == 2


def test_of_nodes_to_ask_rather_not_the_first_comes_first_though_it_failed_long_ago() -> None:
    """It may be the only one that is well, and was restarted: nothing else would use it, and end the doubt."""
    restarted, cut_off = NodeView(1, doubtful=True), NodeView(2, connected=True)
    assert least_loaded([restarted, cut_off], set(), now=100.0, rather_not=[1, 2]) == 1


def test_a_failed_node_comes_last_and_the_one_that_may_be_retried_first_before_the_others() -> None:
    failed_long, failed_short = NodeView(1, failed=True, retry_at=109.0), NodeView(2, failed=True, retry_at=101.0)
    assert chosen(failed_long, failed_short, NodeView(3, connected=True, muted_until=999.0)) == 3
    assert chosen(failed_long, failed_short) == 2


def test_a_node_that_is_being_connected_to_comes_before_one_that_must_be_connected_first() -> None:
    assert chosen(NodeView(1), NodeView(2, connecting=True)) == 2
    assert chosen(NodeView(1, connected=True, in_flight=9), NodeView(2, connecting=True)) == 1
    assert chosen(NodeView(1, failed=True, connecting=True), NodeView(2)) == 2


def test_among_equals_the_first() -> None:
    assert chosen(NodeView(7), NodeView(3)) == 7


def test_brokers_are_the_candidates_while_one_of_them_may_answer() -> None:
    brokers, bootstrap = [NodeView(1, failed=True), NodeView(2)], [NodeView(-1)]
    assert candidates(brokers, bootstrap, overdue=False) == brokers


def test_bootstrap_servers_are_candidates_while_no_broker_is_known() -> None:
    assert candidates([], [NodeView(-1)], overdue=False) == [NodeView(-1)]


def test_kip_899_bootstrap_servers_come_back_when_all_brokers_have_failed() -> None:
    failed = NodeView(1, failed=True)
    assert candidates([failed], [NodeView(-1)], overdue=False) == [NodeView(-1), failed]


def test_kip_1102_bootstrap_servers_come_back_when_an_answer_is_overdue() -> None:
    alive, server = NodeView(1, connected=True), NodeView(-1)
    assert least_loaded(candidates([alive], [server], overdue=False), set(), now=0.0) == 1
    overdue = candidates([alive], [server], overdue=True)
    assert least_loaded(overdue, set(), now=0.0) == -1
    assert least_loaded(overdue, {-1}, now=0.0) == 1


nodes = st.lists(
    st.builds(
        NodeView,
        st.integers(-3, 9),
        connected=st.booleans(),
        in_flight=st.integers(0, 3),
        muted_until=st.sampled_from([0.0, 150.0]),
        retry_at=st.sampled_from([0.0, 150.0]),
        failed=st.booleans(),
    ),
    unique_by=lambda node: node.node_id,
)


@given(nodes)
def test_asking_again_and_again_tries_every_node_once(views: list[NodeView]) -> None:
    tried: list[int] = []
    while (node_id := least_loaded(views, set(tried), now=100.0)) is not None:
        tried.append(node_id)
    assert sorted(tried) == sorted(view.node_id for view in views)


def test_of_brokers_that_are_not_connected_one_that_failed_long_ago_comes_last() -> None:
    """It may drop packets, and cost a part of the caller's time each time that it is tried."""
    doubtful, good = NodeView(1, doubtful=True), NodeView(2)
    assert chosen(doubtful, good) == 2
    assert chosen(doubtful, good, tried=frozenset({2})) == 1
    assert chosen(NodeView(1, doubtful=True, connected=True), good) == 1
