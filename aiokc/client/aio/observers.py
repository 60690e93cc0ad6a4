"""Observers: what those of consumers and of producers share. What they raise is logged, and ends no call."""

from __future__ import annotations

from typing import Generic, TypeVar

from ...observer import Observer, ProducerObserver
from .hook_errors import HookErrors

ObserverT = TypeVar("ObserverT", bound=Observer | ProducerObserver)


class ClientObservers(Generic[ObserverT]):
    """The observers of one client. ``all`` is empty for most clients: then nothing is measured for them."""

    def __init__(self, first: ObserverT | None, client: str) -> None:
        """``client``: what log lines call it."""
        self.all: tuple[ObserverT, ...] = ()
        self._client = client
        self._errors = HookErrors("observer")
        if first is not None:
            self.add(first)

    def add(self, observer: ObserverT) -> None:
        """Whoever is there already stays so: that object, not one that equals it, as dataclasses do at first."""
        is_there = any(one is observer for one in self.all)
        self._set(self.all if is_there else (*self.all, observer))

    def remove(self, observer: ObserverT) -> None:
        self._set(tuple(one for one in self.all if one is not observer))

    def _set(self, observers: tuple[ObserverT, ...]) -> None:
        self.all = observers

    def _complain(self, one: ObserverT, method: str, error: BaseException) -> None:
        self._errors.log(one, method, f"the {self._client} goes on", error)
