"""The ledger of a chain finds each thing that an exactly-once chain does not do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from .ledger import Ledger


def well() -> Ledger:
    """Three records that have come through, one that failed, and one that was sent and nobody knows of."""
    ledger = Ledger(readings=[[]])
    ledger.hear(
        {"acked": [["w1-0", 0, 0], ["w1-2", 0, 1]], "failed": [["w1-3", "no", "TooLarge"], ["w1-4", "maybe", ""]]}
    )
    ledger.inputs = [(0, 0, "w1-0"), (0, 1, "w1-2"), (1, 0, "w1-1")]
    ledger.outputs = [(0, 0, "0:0:w1-0"), (0, 3, "0:1:w1-2"), (1, 5, "1:0:w1-1")]
    ledger.hear({"read": [[0, 0, "0:0:w1-0"]]})
    ledger.hear({"read": [[1, 5, "1:0:w1-1"], [0, 3, "0:1:w1-2"]]})
    return ledger


def lost(ledger: Ledger) -> None:
    ledger.outputs.pop(1)
    ledger.readings.clear()


def copied_twice(ledger: Ledger) -> None:
    ledger.outputs.append((1, 6, "1:0:w1-1"))


def invented(ledger: Ledger) -> None:
    ledger.outputs.append((1, 6, "1:1:w1-9"))


def turned_round(ledger: Ledger) -> None:
    ledger.outputs[:2] = [(0, 0, "0:1:w1-2"), (0, 3, "0:0:w1-0")]
    ledger.readings.clear()


def read_and_gone(ledger: Ledger) -> None:
    ledger.readings[0].append((1, 6, "1:0:w1-1"))


def passed_over(ledger: Ledger) -> None:
    ledger.readings = [[(0, 3, "0:1:w1-2")]]


def acknowledged_and_gone(ledger: Ledger) -> None:
    ledger.acked.append((1, 1, "w1-9"))


def acknowledged_elsewhere(ledger: Ledger) -> None:
    ledger.acked.append((1, 7, "w1-1"))


def acknowledged_twice(ledger: Ledger) -> None:
    ledger.acked.append((0, 0, "w1-0"))


def refused_and_there(ledger: Ledger) -> None:
    ledger.failed["w1-1"] = ("no", "TooLarge")


def input_twice(ledger: Ledger) -> None:
    ledger.inputs.append((1, 1, "w1-1"))
    ledger.outputs.append((1, 6, "1:1:w1-1"))


def input_turned_round(ledger: Ledger) -> None:
    ledger.inputs.append((0, 2, "w1-1"))
    ledger.outputs = [row for row in ledger.outputs if row[0] == 0] + [(0, 4, "0:2:w1-1")]
    ledger.inputs.remove((1, 0, "w1-1"))
    ledger.readings.clear()


WRONG: Final = (
    *(lost, copied_twice, invented, turned_round, read_and_gone, passed_over, acknowledged_and_gone),
    *(acknowledged_elsewhere, acknowledged_twice, refused_and_there, input_twice, input_turned_round),
)


def test_nothing_is_wrong() -> None:
    assert well().wrong() == []


@pytest.mark.parametrize("spoil", WRONG)
def test_what_is_wrong_is_found(spoil: Callable[[Ledger], None]) -> None:
    ledger = well()
    spoil(ledger)
    assert len(ledger.wrong()) == 1, ledger.wrong()
