"""The diagram of the membership states in docs/design.md, drawn from the transition table.

python -m tests.docs.state_diagram      writes it into the page
"""

from __future__ import annotations

from aiokc.core.group.classic.transitions import NEXT, State

from .file_map import PAGE

BEGIN, END = "<!-- membership states: begin -->", "<!-- membership states: end -->"


def state_diagram() -> str:
    """One arrow for each pair of states, with the events that lead from one to the other; no arrows back to itself."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> UNJOINED"]
    for state, events in NEXT.items():
        arrows: dict[State, list[str]] = {}
        for event, targets in events.items():
            for target in State:
                if target in targets and target is not state:
                    arrows.setdefault(target, []).append(event.__name__)
        lines += [f"    {state} --> {target}: {', '.join(names)}" for target, names in arrows.items()]
    return "\n".join([*lines, "    LEFT --> [*]", "```"])


def page_with_diagram() -> str:
    """The page as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{state_diagram()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page_with_diagram())
