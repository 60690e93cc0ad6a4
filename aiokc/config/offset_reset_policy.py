"""The values of auto_offset_reset and offset_out_of_range_reset, "by_duration:..." of KIP-1106 among them."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from ..errors import ConfigError

#: "earliest", "latest", "none", or "by_duration:" and an ISO 8601 duration, "by_duration:P1DT12H" (KIP-1106).
OffsetResetPolicy: TypeAlias = str

_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>[0-9]{1,18})D)?"
    r"(?:T(?=.)(?:(?P<hours>[0-9]{1,18})H)?(?:(?P<minutes>[0-9]{1,18})M)?(?:(?P<seconds>[0-9]{1,18})(?:[.,](?P<fraction>[0-9]{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def duration_ms(policy: str) -> int | None:
    """Return how far back "by_duration:..." goes, in ms (KIP-1106); None for every other policy. Raises ConfigError."""
    if not policy.startswith(_BY_DURATION):
        return None
    found = _DURATION.fullmatch(policy.removeprefix(_BY_DURATION))
    if found is None:
        raise ConfigError(f"{policy!r}: after 'by_duration:' an ISO 8601 duration is due, such as 'PT30M' or 'P7D'")
    days, hours, minutes, seconds = (int(found[name] or 0) for name in ("days", "hours", "minutes", "seconds"))
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 1000 + int((found["fraction"] or "0").ljust(3, "0")[:3])


def check_reset(name: str, policy: str | None) -> None:
    """Raise ConfigError if ``policy``, the value of the option ``name``, is none."""
    if policy is not None and policy not in ("earliest", "latest", "none") and duration_ms(policy) is None:
        raise ConfigError(f"{name}={policy!r} must be one of 'earliest', 'latest', 'none', 'by_duration:<ISO 8601>'")
