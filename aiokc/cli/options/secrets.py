"""Secrets by the place where they are kept: ``{env=NAME}``, ``{file=PATH}``, ``{command=["…"]}``."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

from aiokc.config.written.values import in_home, is_file

from ..problems import UsageProblem
from ..system import System
from .files import MOST_BYTES, read_text
from .spelling import is_secret

_COMMAND_SECONDS = 60
_PATIENCE_SECONDS = 0.5
_LOOK_SECONDS = 0.05
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


def holds_secret(field: str, value: object) -> bool:
    """Whether the text for an option is a secret itself, and not its place: ``{env=…}`` and the like, or a file."""
    if not isinstance(value, str):
        return False
    if "PRIVATE KEY-----" in value:  # whatever the option: a file of certificates may hold the key, too
        return True
    return is_secret(field) and not is_file(field, value) and _place(field, value) is None


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
        return read_text(in_home(f"the file of {name}", path)).removesuffix("\n").removesuffix("\r")
    except UsageProblem as too_long:
        raise UsageProblem(f"{name}: {too_long}") from None
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "is no text in UTF-8"
        raise UsageProblem(f"{name}: {path}: {problem}") from error


def _of_command(name: str, words: object) -> str:
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        raise UsageProblem(f'{name}: a command is a list of texts, such as ["pass", "show", "kafka"]')
    try:
        said, code = _run(words)
    except OSError as error:
        raise UsageProblem(f"{name}: the command {words[0]} can't be run: {error.strerror}") from error
    except ValueError as error:  # a byte of zero in a word
        raise UsageProblem(f"{name}: the command can't be run: {error}") from error
    if said is None:
        raise UsageProblem(f"{name}: the command {words[0]} took more than {_COMMAND_SECONDS} s")
    if len(said) > MOST_BYTES:
        raise UsageProblem(f"{name}: the command {words[0]} wrote more than 1 MiB: is it the right one?")
    if code:
        raise UsageProblem(f"{name}: the command {words[0]} ended with exit code {code}")
    try:
        text = said.decode().replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageProblem(f"{name}: the command {words[0]} wrote no text") from error
    return text.removesuffix("\n")


def _run(words: list[str]) -> tuple[bytes | None, int]:
    """Return what the command wrote, None if it took too long, and its exit code. One that writes too much is ended.

    A thread reads: a child of the command may keep the pipe open after the command has ended, such as an agent that it
    starts. What the command itself wrote is in the pipe by then.
    """
    import os
    import subprocess
    import threading
    import time

    process = subprocess.Popen(words, stdout=subprocess.PIPE)
    pipe = process.stdout
    assert pipe is not None
    said = bytearray()

    def read() -> None:
        with pipe:
            while len(said) <= MOST_BYTES and (part := os.read(pipe.fileno(), MOST_BYTES)):
                said.extend(part)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    deadline = time.monotonic() + _COMMAND_SECONDS
    try:
        while reader.is_alive() and process.poll() is None and time.monotonic() < deadline:
            reader.join(_LOOK_SECONDS)
        if len(said) > MOST_BYTES:
            return bytes(said), 0
        code = process.wait(max(0.0, deadline - time.monotonic()))
        reader.join(_PATIENCE_SECONDS)
        return bytes(said), code
    except subprocess.TimeoutExpired:
        return None, 0
    except KeyboardInterrupt:  # Ctrl-C reaches the command, too: let it switch the terminal's echo on again
        with suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_SECONDS)
        raise
    finally:
        process.kill()
        process.wait()
