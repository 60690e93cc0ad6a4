"""Calls the application's producer interceptors in order, each with the last good record; logs what they raise."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...core.rate_limit import RateLimit, and_more
from ...errors import shown
from ...interceptor import ProducerInterceptor
from ...net.user_errors import USER_ERRORS
from ...types import HeadersToSend, ProducerRecord, RecordMetadata

logger = logging.getLogger("aiokc.interceptor")

_COMPLAINT_SECONDS: Final = 30.0


class ProducerInterceptors:
    """The interceptors of one producer (KIP-42)."""

    def __init__(
        self,
        interceptors: Sequence[ProducerInterceptor],
        checked: Callable[[ProducerRecord[Any, Any]], ProducerRecord[Any, Any]],
    ) -> None:
        """``checked`` raises ConfigError for a record that can't be sent, as the producer does for its arguments."""
        self._interceptors = tuple(interceptors)
        self._checked = checked
        self._complaints = RateLimit(_COMPLAINT_SECONDS)
        self._closed = False

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record that the interceptors want sent in the place of this one."""
        for one in self._interceptors:
            try:
                changed: object = one.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send() returned {type(changed).__name__}: it must return the record to send")
                record = changed if changed is record else self._checked(changed)
            except USER_ERRORS as error:
                self._complain(one, "on_send", "the record that it was given goes on", error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: HeadersToSend) -> None:
        for one in self._interceptors:
            try:
                one.on_acknowledgement(metadata, error, headers)
            except USER_ERRORS as raised:
                self._complain(one, "on_acknowledgement", "the record's outcome stays what it is", raised)

    def close(self) -> None:
        """Call close() of each interceptor, once."""
        if self._closed:
            return
        self._closed = True
        for one in self._interceptors:
            try:
                one.close()
            except USER_ERRORS as error:
                self._complain(one, "close", "the producer has stopped all the same", error)

    def _complain(self, one: ProducerInterceptor, method: str, so: str, error: BaseException) -> None:
        name = f"{type(one).__name__}.{method}()"
        held_back = self._complaints.admit(name, asyncio.get_running_loop().time())
        if held_back is not None:
            logger.error(
                "interceptor %s failed, and %s: %s%s", name, so, shown(error), and_more(held_back), exc_info=error
            )
