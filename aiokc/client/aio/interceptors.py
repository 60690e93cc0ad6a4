"""Interceptors: what those of consumers and of producers share. What they raise is logged, and ends no call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from ...interceptor import ConsumerInterceptor, ProducerInterceptor
from .hook_errors import HookErrors

InterceptorT = TypeVar("InterceptorT", ConsumerInterceptor, ProducerInterceptor)


class Interceptors(Generic[InterceptorT]):
    """The application's interceptors of one client, in the order in which they are called (KIP-42)."""

    def __init__(self, interceptors: Sequence[InterceptorT], client: str) -> None:
        """``client``: what log lines call it."""
        self._interceptors: tuple[InterceptorT, ...] = tuple(interceptors)
        self._client = client
        self._errors = HookErrors("interceptor")
        self._closed = False

    def close(self) -> None:
        """Call close() of each interceptor, once."""
        if self._closed:
            return
        self._closed = True
        for one in self._interceptors:
            try:
                one.close()
            except BaseException as error:
                self._errors.log(one, "close", f"the {self._client} has stopped all the same", error)
