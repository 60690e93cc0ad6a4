"""What a command runs with: its arguments, clients with the chosen options, and where its results go."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .exit_codes import DONE, FAILED
from .options.settings import Settings, read_settings
from .output.escapes import escaped
from .output.output import Output
from .output.terminal import Terminal
from .system import System

if TYPE_CHECKING:
    from aiokc import Client


class Context:
    """What a command runs with.

    ``args`` are its arguments, ``settings`` the options of its clients with their origins, ``out`` takes the rows of
    its result, ``terminal`` says how to draw. ``exit_code`` is 0 until an item fails.
    """

    def __init__(self, args: Namespace, system: System) -> None:
        self.args, self.system = args, system
        self.terminal = Terminal(system, args.color)
        self.out = Output(system.stdout, args.format or "table", self.terminal)
        self.exit_code = DONE

    @property
    def now_ms(self) -> int:
        """The time, in ms since the epoch."""
        return int(self.system.now() * 1000)

    @cached_property
    def settings(self) -> Settings:
        """The options of clients, each with its origin. Raises UsageProblem for what is wrong with them."""
        settings = read_settings(self.args, self.system)
        for warning in settings.warnings:
            self.warn(warning)
        return settings

    @property
    def timeout_ms(self) -> int:
        """How long one call may take, and to connect: --timeout."""
        value: int = self.settings.values["default_api_timeout_ms"].value
        return value

    @asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """Connect a Client with the chosen options, and those given here; close it at the end."""
        from aiokc import Client

        async with Client(self.settings.client_config(**options)) as client:
            yield client

    def say(self, sentence: str) -> None:
        """Tell the person something, on stderr, unless --quiet."""
        if not self.args.quiet:
            self._write(escaped(sentence))

    def warn(self, sentence: str) -> None:
        """Tell the person what is weaker or less than it seems, on stderr, unless --quiet."""
        if not self.args.quiet:
            self._write(self.terminal.painted("warning:", "yellow", on=self.system.stderr) + f" {escaped(sentence)}")

    def fail(self, item: str, error: object) -> None:
        """An item has failed: say so on stderr; the exit code will be 1, and the other items go on."""
        self.exit_code = FAILED
        self._write(self.terminal.painted("error:", "red", on=self.system.stderr) + f" {escaped(f'{item}: {error}')}")

    def _write(self, line: str) -> None:
        self.out.flush()  # what was said first is seen first
        self.system.tell(f"{line}\n")
