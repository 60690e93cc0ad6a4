"""What goes wrong, as a sentence for stderr and an exit code."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import Final

from .exit_codes import FAILED, REFUSED, UNREACHED, USAGE

_MOST_SHOWN: Final = 100  # characters
_TO_LOWER: Final = (
    "lower fetch_buffer_bytes and max_decompressed_batch_bytes if it reads, buffer_memory if it sends (-X NAME=BYTES)"
)
_MOST_COMPARED: Final = 249  # no topic has a longer name
_NEIGHBOURS: Final = 100  # on each side


class Problem(Exception):
    """Ends the command with a sentence on stderr and ``exit_code``. ``hint`` is a second line: what to do.

    ``passes``: it may end by itself, so that a command that runs for ever may wait for that.
    """

    exit_code = FAILED
    passes = False

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class UsageProblem(Problem):
    """A wrong option, argument or configuration: exit code 2."""

    exit_code = USAGE


class Refused(Problem):
    """Refused for safety, nothing was changed: exit code 4."""

    exit_code = REFUSED


class NoMoreThreads(Problem):
    """The process can have no more threads."""

    def __init__(self, reason: str) -> None:
        hint = "raise the limit of threads or processes: that of the container (pids), or of the user (ulimit -u)"
        super().__init__(f"the system has no thread to spare: {reason}", hint)


def quoted(given: str) -> str:
    """Return what the person gave, in quotes, for a sentence about it: of more than 100 characters the beginning."""
    return repr(given) if len(given) <= _MOST_SHOWN else f"{given[:_MOST_SHOWN]!r}…"


def cut(text: str) -> str:
    """Return ``text``; of more than 100 characters the beginning."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def outcome(error: Exception) -> tuple[str, int]:
    """Return the sentence and the exit code for an exception that ends the command.

    An exception that is none of aiokc's own is a defect of the command, unless the system has nothing to spare: the
    sentence says so.
    """
    if isinstance(error, Problem):
        return str(error), error.exit_code
    from aiokc.errors import (
        AuthenticationFailed,
        BrokerError,
        ConfigError,
        ConnectionFailed,
        KafkaError,
        RequestTimedOut,
    )

    if isinstance(error, ConfigError):
        return str(error), USAGE
    if isinstance(error, RequestTimedOut) and isinstance(error.__cause__, BrokerError):
        return str(error), FAILED  # a broker was reached, and went on refusing
    if isinstance(error, AuthenticationFailed | ConnectionFailed | RequestTimedOut):
        return str(error), UNREACHED
    if isinstance(error, KafkaError):
        return str(error), FAILED
    if isinstance(error, OSError):
        return str(error), FAILED
    if (scarce := _scarce(error)) is not None:
        return scarce, FAILED
    return (
        f"{type(error).__name__}: {error} (this is a defect of aiokc: please report it, with what --verbose shows)",
        FAILED,
    )


def _scarce(error: Exception) -> str | None:
    """Return the sentence about an exception by which Python says that the system has no memory, or no thread."""
    if isinstance(error, MemoryError):
        said = f" ({error})" if str(error) else ""
        return f"not enough memory{said}: {_TO_LOWER}, or give the process more"
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        problem = NoMoreThreads(str(error))
        return f"{problem}; {problem.hint}"
    return None


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown ``word``: the most similar one of ``words``, "" if none is."""
    from difflib import get_close_matches

    word = word[:_MOST_COMPARED]
    found = get_close_matches(word, _worth_comparing(word, words), 1, 0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _worth_comparing(word: str, words: Iterable[str]) -> list[str]:
    """Return at most 400 of ``words``: those that begin, or end, most like ``word``.

    To compare two names takes up to half a ms, and a cluster may have 100,000 topics. A slip leaves the beginning of a
    name as it was, or its end, so that the two are neighbours in order, read forwards or backwards.
    """
    known = list(dict.fromkeys(words))
    if len(known) <= 4 * _NEIGHBOURS:
        return known
    forwards = _neighbours(word, known)
    backwards = _neighbours(word[::-1], [name[::-1] for name in known])
    return list(dict.fromkeys([*forwards, *(name[::-1] for name in backwards)]))


def _neighbours(word: str, words: list[str]) -> list[str]:
    words.sort()
    place = bisect_left(words, word)
    return words[max(0, place - _NEIGHBOURS) : place + _NEIGHBOURS]
