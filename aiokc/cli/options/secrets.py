"""Secrets by the place where they are kept: ``{env=NAME}``, ``{file=PATH}``, ``{command=["…"]}``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..problems import UsageProblem
from ..system import System
from .files import read_text

_COMMAND_SECONDS = 60
_PLACE = re.compile(r"\{\s*(env|file|command)\s*=\s*(.*?)\s*\}", re.DOTALL)


def resolved_secret(name: str, value: object, system: System) -> tuple[object, str]:
    """Return the value of an option and, for messages, its place: for ``{env=…}`` and the like what is kept there.

    ``value`` is a text or a table of TOML. Every option may be given so, not only secrets. Raises UsageProblem.
    """
    place = _place(name, value)
    if place is None:
        return value, ""
    kind, where = place
    if kind == "env":
        return _of_environment(name, str(where), system), f" (${where})"
    if kind == "file":
        return _of_file(name, str(where)), f" ({where})"
    return _of_command(name, where), " (a command)"


def asks_for_secret(values: dict[str, Any]) -> bool:
    """Whether a password is missing that a person could type in."""
    return bool(values.get("sasl_plain_username")) and not values.get("sasl_plain_password")


def _place(name: str, value: object) -> tuple[str, Any] | None:
    if isinstance(value, str):
        found = _PLACE.fullmatch(value.strip())
        if found is None:
            return None
        kind, where = found[1], found[2]
        return kind, _words(name, where) if kind == "command" else where.strip("\"'")
    if isinstance(value, dict) and len(value) == 1 and (kind := next(iter(value))) in ("env", "file", "command"):
        return kind, value[kind]
    return None


def _words(name: str, text: str) -> Any:
    import tomllib

    try:
        return tomllib.loads(f"words = {text}")["words"]
    except tomllib.TOMLDecodeError as error:
        raise UsageProblem(
            f'{name}: {{command=["program", "argument"]}} is expected, not {{command={text}}}'
        ) from error


def _of_environment(name: str, variable: str, system: System) -> str:
    if variable not in system.environ:
        raise UsageProblem(f"{name}: the environment has no variable {variable}")
    return system.environ[variable]


def _of_file(name: str, path: str) -> str:
    try:
        return read_text(Path(path).expanduser()).removesuffix("\n").removesuffix("\r")
    except UsageProblem as too_long:
        raise UsageProblem(f"{name}: {too_long}") from None
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise UsageProblem(f"{name}: {path}: {problem}") from error


def _of_command(name: str, words: object) -> str:
    import subprocess

    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise UsageProblem(f'{name}: a command is a list of texts, such as ["pass", "show", "kafka"]')
    try:
        done = subprocess.run(words, stdout=subprocess.PIPE, timeout=_COMMAND_SECONDS, check=True, text=True)
    except subprocess.CalledProcessError as error:
        raise UsageProblem(f"{name}: the command {words[0]} ended with exit code {error.returncode}") from None
    except subprocess.TimeoutExpired:
        raise UsageProblem(f"{name}: the command {words[0]} took more than {_COMMAND_SECONDS} s") from None
    except OSError as error:
        raise UsageProblem(f"{name}: the command {words[0]} can't be run: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{name}: the command {words[0]} wrote no text") from error
    return done.stdout.removesuffix("\n").removesuffix("\r")
