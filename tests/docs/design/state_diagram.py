"""The diagrams of states in docs/design.md, drawn from the transition tables of the machines.

python -m tests.docs.design.state_diagram      writes them into the page
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Flag
from typing import Any, Final, TypeAlias

from aiokc.core.group.classic import transitions as classic
from aiokc.core.group.consumer import transitions as consumer
from aiokc.core.transactions import transitions as transactions

from .layers import PAGE

#: An event, by its name, and the state that it can lead to.
_Edge: TypeAlias = tuple[str, Flag]


@dataclass(frozen=True)
class Machine:
    """A machine's table. What can happen in each state of ``inside`` is drawn as arrows from a box around them."""

    name: str
    states: type[Flag]
    table: Mapping[Any, Mapping[type, Any]]
    inside: Flag
    box: str
    begin: Flag
    end: Flag

    @property
    def marks(self) -> tuple[str, str]:
        return f"<!-- {self.name} states: begin -->", f"<!-- {self.name} states: end -->"


MACHINES: Final = (
    Machine(
        "membership",
        classic.State,
        classic.NEXT,
        classic.JOINING_OR_IN,
        "joins, or is in a generation",
        classic.State.UNJOINED,
        classic.State.LEFT,
    ),
    Machine(
        "consumer protocol",
        consumer.State,
        consumer.NEXT,
        consumer.State.RECONCILING | consumer.State.STABLE,
        "is in the group",
        consumer.State.UNSUBSCRIBED,
        consumer.State.LEFT,
    ),
    Machine(
        "transaction",
        transactions.State,
        transactions.NEXT,
        transactions.OPEN,
        "a transaction is open",
        transactions.State.UNINITIALIZED,
        transactions.State.FATAL_ERROR,
    ),
)


def state_diagram(machine: Machine) -> str:
    """Return one arrow for each pair of states, with the events that lead from one to the other; no arrows back to
    itself."""
    edges = {state: _edges_of(machine, state) for state in machine.table}
    inside = [state for state in machine.states if state in machine.inside]
    shared = {edge for edge in edges[inside[0]] if all(edge in edges[state] for state in inside)}
    shared -= {(event, target) for event, target in shared if target in inside}
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {machine.begin}",
        f'    state "{machine.box}" as BOX {{',
    ]
    lines += [f"        {state}" for state in inside]
    lines += ["    }", *_arrows("BOX", [edge for edge in edges[inside[0]] if edge in shared])]
    for state, own in edges.items():
        lines += _arrows(str(state), [edge for edge in own if state not in inside or edge not in shared])
    return "\n".join([*lines, f"    {machine.end} --> [*]", "```"])


def _edges_of(machine: Machine, state: Flag) -> list[_Edge]:
    return [
        (event.__name__, target)
        for event, targets in machine.table[state].items()
        for target in machine.states
        if target in targets and target is not state
    ]


def _arrows(source: str, edges: Iterable[_Edge]) -> list[str]:
    names: dict[Flag, list[str]] = {}
    for event, target in edges:
        names.setdefault(target, []).append(event)
    return [f"    {source} --> {target}: {', '.join(events)}" for target, events in names.items()]


def page_with_diagram() -> str:
    """Return the page as it should be."""
    page = PAGE.read_text()
    for machine in MACHINES:
        begin, end = machine.marks
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n{state_diagram(machine)}\n{end}{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(page_with_diagram())
