"""Everything that a program, its logs, and tools that report its errors may show of a client."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import traceback
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from aiokc.errors import KafkaError

from .canaries import Canaries

_ROOT: Final = Path(__file__).parents[3]
# Variables of the application's own frames, and of the brokers and the identity provider of the tests, do not count.
_OF_OTHERS: Final = (str(_ROOT / "tests"), str(_ROOT / "aiokc" / "testing"))
# How deep the search goes into the values that a client keeps.
_DEPTH: Final = 4


class Shown(logging.Handler):
    """Collects texts, each with the place where it is shown. As a handler it collects log lines."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._texts: dict[str, str] = {}
        self.errors: list[BaseException] = []

    def text(self, where: str, text: str) -> None:
        """Collect a text."""
        self._texts.setdefault(text, where)

    def value(self, where: str, value: object, depth: int = _DEPTH) -> None:
        """Collect what the repr of a value shows, and the reprs of the values that it keeps."""
        seen: set[int] = set()
        todo: list[tuple[str, object, int]] = [(where, value, depth)]
        while todo:
            name, found, left = todo.pop()
            if id(found) in seen:
                continue
            seen.add(id(found))
            self.text(name, f"{found!r} {found!s}" if not isinstance(found, BaseException) else repr(found))
            if left and type(found).__module__.startswith("aiokc.") and not isinstance(found, type):
                todo += [(f"{name}.{key}", held, left - 1) for key, held in _fields(found)]

    def error(self, error: BaseException) -> None:
        """Collect what is shown of an exception, and of all exceptions in its chain."""
        self.errors.append(error)
        seen: set[int] = set()
        todo: list[BaseException | None] = [error]
        while todo:
            one = todo.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            todo += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
            self._frames(one.__traceback__)
            if not _is_of_the_application(one):
                self._one_error(one)

    def emit(self, record: logging.LogRecord) -> None:
        where = f"log of {record.name}"
        self.text(where, record.getMessage())
        self.text(where, repr(record.args))
        if record.exc_info is not None and record.exc_info[1] is not None:
            self.error(record.exc_info[1])

    def loop(self, context: dict[str, Any]) -> None:
        """Collect what a loop's exception handler is told, and let it write its log line."""
        self.value("exception handler", sorted(context.items(), key=repr))
        if isinstance(error := context.get("exception"), BaseException):
            self.error(error)

    def tasks(self) -> None:
        """Collect the reprs of all tasks, and what their frames show."""
        for task in asyncio.all_tasks():
            self.text("task", repr(task))
            waiting: object = task.get_coro()
            while waiting is not None:  # Task.get_stack() has the outermost frame only
                frame = getattr(waiting, "cr_frame", None)
                if frame is not None and not frame.f_code.co_filename.startswith(_OF_OTHERS):
                    self._variables(frame.f_code.co_qualname, frame.f_locals)
                waiting = getattr(waiting, "cr_await", None)

    def leaks(self, canaries: Canaries) -> list[str]:
        """Return where the canaries are found."""
        gc.collect()  # tasks whose exception was never retrieved write a log line now
        if not any(canaries.found("\n".join(self._texts))):  # all at once: much faster than one by one
            return []
        return [f"{where}: {leak}" for text, where in self._texts.items() for leak in canaries.found(text)]

    def __contains__(self, text: str) -> bool:
        return any(text in shown for shown in self._texts)

    def _one_error(self, error: BaseException) -> None:
        name = type(error).__name__
        for text in (str(error), repr(error), repr(error.args), *map(str, getattr(error, "__notes__", ()))):
            self.text(f"{name}'s text", text)
        for text in traceback.TracebackException.from_exception(error).format(chain=False):
            self.text(f"{name}'s traceback", text)
        self.text(f"{name}'s fields", repr(vars(error)))
        try:
            self.text(f"{name} pickled", pickle.dumps(error, protocol=0).decode("latin-1"))
            self.text(f"{name} pickled", repr(pickle.dumps(error)))
        except Exception:
            assert not isinstance(error, KafkaError)  # these can all be pickled

    def _frames(self, trace: TracebackType | None) -> None:
        """Collect the variables of the library's frames, and of what it calls, as tools that report errors do."""
        for frame, _ in traceback.walk_tb(trace):
            if not frame.f_code.co_filename.startswith(_OF_OTHERS):
                self._variables(frame.f_code.co_qualname, frame.f_locals)

    def _variables(self, function: str, variables: dict[str, Any]) -> None:
        for name, value in variables.items():
            self.text(f"variable {name} of {function}", _repr(value))


def _fields(value: object) -> list[tuple[str, object]]:
    fields = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        for name in getattr(kind, "__slots__", ()):
            # Only repr counts: what a Secret keeps is what it hides.
            if hasattr(value, name) and name != "_text":
                fields[name] = getattr(value, name)
    return list(fields.items())


def _is_of_the_application(error: BaseException) -> bool:
    """Return whether the application's own code has raised it: what that shows is the application's choice."""
    frames = list(traceback.walk_tb(error.__traceback__))
    return bool(frames) and frames[-1][0].f_code.co_filename.startswith(_OF_OTHERS[0])


def _repr(value: object) -> str:
    try:
        return repr(value)
    except Exception as error:  # as traceback does: an object may not be whole yet
        return f"<no repr: {type(error).__name__}>"
