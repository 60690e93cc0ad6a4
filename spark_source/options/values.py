"""Parsing the text of one option value: number, boolean, time span, JSON. Errors name the option. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from aiokc.config.checks import MOST_64
from aiokc.errors import ConfigError

from ..offsets import quoted

_LONGEST: Final = 20  # the digits of 64 bits, and a sign
# Spark's own units of time (JavaUtils.timeStringAsMs); a bare number is in milliseconds.
_MICROSECONDS: Final = {
    "us": 1,
    "ms": 1_000,
    "": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}


def integer(option: str, text: str) -> int:
    """Return a whole number. Raises ConfigError."""
    if not re.fullmatch(r"[+-]?[0-9]+", text.strip()):
        raise ConfigError(f"option '{option}' must be a whole number, not {quoted(text)}")
    if len(text.strip()) > _LONGEST or not -(1 << 63) <= int(text) < 1 << 63:
        raise ConfigError(f"option '{option}' must fit into 64 bits: {text.strip()[:_LONGEST]} does not")
    return int(text)


def at_least(option: str, least: int, text: str, most: int = MOST_64) -> int:
    """Return a whole number from ``least`` to ``most``. Raises ConfigError."""
    number = integer(option, text)
    if number < least:
        raise ConfigError(f"option '{option}' must be at least {least}, not {number}")
    if number > most:
        raise ConfigError(f"option '{option}' must be at most {most}, not {number}")
    return number


def number(option: str, text: str) -> float:
    """Return a number, which may have decimals. Raises ConfigError."""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}(\.[0-9]{1,18})?", text.strip()):
        raise ConfigError(f"option '{option}' must be a number, not {quoted(text)}")
    return float(text)


def boolean(option: str, text: str) -> bool:
    """Return true or false, written in any case. Raises ConfigError."""
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ConfigError(f"option '{option}' must be true or false, not {quoted(text)}")
    return lowered == "true"


def one_of(option: str, values: tuple[str, ...], text: str) -> str:
    """Return the one of ``values`` that ``text`` is, written in any case. Raises ConfigError."""
    lowered = text.strip().lower()
    if lowered not in values:
        raise ConfigError(f"option '{option}' must be one of {', '.join(values)}, not {quoted(text)}")
    return lowered


def milliseconds(option: str, text: str) -> int:
    """Return the ms of a time span in Spark's notation: "15m", "30s", "500ms", "1500". Raises ConfigError."""
    found = re.fullmatch(r"([0-9]{1,18})([a-z]*)", text.strip().lower())
    if found is None or found[2] not in _MICROSECONDS:
        raise ConfigError(f"option '{option}' must be a time span like 500ms, 30s, 15m or 1h, not {quoted(text)}")
    return int(found[1]) * _MICROSECONDS[found[2]] // 1000


def json_object(option: str, example: str, text: str) -> Mapping[str, Any]:
    """Return a JSON object without duplicate keys. Raises ConfigError, which shows the ``example``."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
            raise ConfigError(f"option '{option}' names {quoted(twice)} twice")
        return found

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except ConfigError:
        raise
    except (ValueError, RecursionError) as error:  # no JSON, too many digits for int(), nested too deeply
        where = f": {error.msg}, after {error.pos:,} characters" if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(f"option '{option}': {quoted(text)} is no JSON like {example}{where}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"option '{option}': {quoted(text)} is no JSON object like {example}")
    return document
