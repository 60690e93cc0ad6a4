"""The diagram of the membership states in docs/design.md, drawn from the transition table.

python -m tests.docs.state_diagram      writes it into the page
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from aiokc.core.group.classic.transitions import JOINING_OR_IN, NEXT, State

from .file_map import PAGE

BEGIN, END = "<!-- membership states: begin -->", "<!-- membership states: end -->"

#: An event, by its name, and the state that it can lead to.
_Edge: TypeAlias = tuple[str, State]


def state_diagram() -> str:
    """One arrow for each pair of states, with the events that lead from one to the other; no arrows back to itself.

    What can happen in each state of JOINING_OR_IN, and leads out of them, is one arrow from the box around them.
    """
    edges = {state: _edges_of(state) for state in NEXT}
    inside = [state for state in State if state in JOINING_OR_IN]
    shared = {edge for edge in edges[inside[0]] if all(edge in edges[state] for state in inside)}
    shared -= {(event, target) for event, target in shared if target in inside}
    lines = [
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> UNJOINED",
        '    state "joins, or is in a generation" as MEMBER {',
    ]
    lines += [f"        {state}" for state in inside]
    lines += ["    }", *_arrows("MEMBER", [edge for edge in edges[inside[0]] if edge in shared])]
    for state, own in edges.items():
        lines += _arrows(str(state), [edge for edge in own if state not in inside or edge not in shared])
    return "\n".join([*lines, "    LEFT --> [*]", "```"])


def _edges_of(state: State) -> list[_Edge]:
    events: Mapping[type, State] = NEXT[state]
    return [
        (event.__name__, target)
        for event, targets in events.items()
        for target in State
        if target in targets and target is not state
    ]


def _arrows(source: str, edges: Iterable[_Edge]) -> list[str]:
    names: dict[State, list[str]] = {}
    for event, target in edges:
        names.setdefault(target, []).append(event)
    return [f"    {source} --> {target}: {', '.join(events)}" for target, events in names.items()]


def page_with_diagram() -> str:
    """The page as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{state_diagram()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_diagram())
