"""The options of a config from a mapping that others wrote: the environment, or the dictionary of another client."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import Field
from typing import Any, Final

from ...errors import ConfigError, shown
from ..names import suggestion
from .other_names import our_name, spelled
from .values import typed

#: Variables of the environment that begin as options do, and are none.
NO_OPTIONS: Final = frozenset(
    (
        *("AIOKC_PROFILE", "AIOKC_CONFIG", "AIOKC_NATIVE", "AIOKC_CODEC_LIBRARIES", "AIOKC_KAFKA_HOME"),
        *("AIOKC_BOOTSTRAP", "AIOKC_SPARK", "AIOKC_CALLS"),
    )
)
# Kubernetes gives them to every container beside a service whose name begins as the prefix does.
_OF_A_SERVICE: Final = re.compile(r"(\w+_)?(SERVICE_HOST|SERVICE_PORT|PORT)(_\w+)?")
_MOST_TOLD: Final = 20  # problems: who gives a whole environment without a prefix has many

Fields = Mapping[str, Field[Any]]


def names_no_option(variable: str, prefix: str) -> bool:
    """Whether a variable of the environment that begins with ``prefix`` is there for something else."""
    return variable in NO_OPTIONS or _OF_A_SERVICE.fullmatch(variable.removeprefix(prefix)) is not None


def options_of(known: Fields, others: Iterable[str], given: Any, prefix: str) -> tuple[dict[str, Any], str | None]:
    """Return the options ``known`` to a config that the mapping ``given`` names in any spelling, with typed values.

    ``others`` are options that only other kinds of clients have: they are left out. The second result is all that is
    wrong in names and texts; None: nothing. It is not raised from here: tools that report errors show the variables of
    each frame, and ``given`` holds passwords.
    """
    if not isinstance(given, Mapping):
        return {}, f"options must be a mapping of names to values, not {type(given).__name__}"
    options, problems = _read(known, frozenset(others), given, prefix)
    return options, _told(problems) if problems else None


def _read(
    known: Fields, others: frozenset[str], given: Mapping[str, Any], prefix: str
) -> tuple[dict[str, Any], list[str]]:
    options: dict[str, Any] = {}
    problems: list[str] = []
    # Names of our own last: they win over what other clients call the same option.
    for name in sorted((one for one in given if _begins(one, prefix)), key=lambda one: _is_ours(one, prefix, known)):
        if prefix and names_no_option(name, prefix):
            continue
        bare = str(name).removeprefix(prefix)
        option = our_name(bare)
        if option in known:
            try:
                options[option] = typed(known[option], given[name], bare)
            except ConfigError as problem:
                problems.append(f"{prefix}{problem}")  # it begins with the name
        elif option not in others:
            problems.append(f"unknown option {shown(name)}{suggestion(bare, known)}")
    return options, problems


def _begins(name: object, prefix: str) -> bool:
    return str(name).startswith(prefix)


def _is_ours(name: object, prefix: str, known: Fields) -> bool:
    return spelled(str(name).removeprefix(prefix)) in known


def _told(problems: list[str]) -> str:
    if len(problems) == 1:
        return problems[0]
    more = len(problems) - _MOST_TOLD
    lines = [*problems[:_MOST_TOLD], *([f"and {more} more"] if more > 0 else [])]
    return f"{len(problems)} options are wrong:" + "".join(f"\n- {line}" for line in lines)
