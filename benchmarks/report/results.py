"""The results of a run as JSON: every single measurement, with the conditions that it was made under."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..cases import Case
from ..measuring.job import Measurement
from ..studies import Study


@dataclass(frozen=True, slots=True)
class Outcome:
    """One measurement, or the reason why it failed."""

    round: int
    case: str
    client: str
    measurement: Measurement | None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Results:
    """A whole run."""

    environment: dict[str, str]
    settings: dict[str, Any]
    cases: Sequence[Case]
    outcomes: Sequence[Outcome]
    studies: Sequence[Study] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether a measurement failed, be it one of a study."""
        return any(outcome.measurement is None for outcome in self.outcomes) or any(
            study.failed for study in self.studies
        )

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        found = json.loads(path.read_text())
        return cls(
            environment=found["environment"],
            settings=found["settings"],
            cases=[Case(**case) for case in found["cases"]],
            outcomes=[_outcome(outcome) for outcome in found["outcomes"]],
            studies=[Study(**study) for study in found.get("studies", [])],
        )


def _outcome(found: dict[str, Any]) -> Outcome:
    measurement = found["measurement"]
    return Outcome(**{**found, "measurement": measurement and Measurement.from_dict(measurement)})
