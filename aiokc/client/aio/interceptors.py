"""Interceptors: what those of consumers and of producers share. What they raise is logged, and ends no call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...interceptor import ConsumerInterceptor, ProducerInterceptor
from ...net.user_errors import leaves_the_loop

logger = logging.getLogger("aiokc.interceptor")

_COMPLAINT_SECONDS: Final = 30.0

InterceptorT = TypeVar("InterceptorT", ConsumerInterceptor, ProducerInterceptor)


class Interceptors(Generic[InterceptorT]):
    """The application's interceptors of one client, in the order in which they are called (KIP-42)."""

    def __init__(self, interceptors: Sequence[InterceptorT], client: str) -> None:
        """``client``: what log lines call it."""
        self._interceptors: tuple[InterceptorT, ...] = tuple(interceptors)
        self._client = client
        self._complaints = RateLimit(_COMPLAINT_SECONDS)
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
                self._complain(one, "close", f"the {self._client} has stopped all the same", error)

    def _complain(self, one: InterceptorT, method: str, so: str, error: BaseException) -> None:
        """Log the error, at most every 30 s for each method. A CancelledError is one, too: nothing is awaited here.

        What ends the loop's run, does so: soon, and the client goes on until then.
        """
        if leaves_the_loop(error):
            return
        name = f"{type(one).__name__}.{method}()"
        held_back = self._complaints.admit(name, asyncio.get_running_loop().time())
        if held_back is not None:
            logger.error(
                "interceptor %s failed, and %s: %s%s", name, so, shown(error), and_more(held_back), exc_info=error
            )
