"""Calls the application's producer interceptors in order, each with the last good record; logs what they raise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...interceptor import ProducerInterceptor
from ...types import HeadersToSend, ProducerRecord, RecordMetadata
from ..aio.interceptors import Interceptors


class ProducerInterceptors(Interceptors[ProducerInterceptor]):
    """The interceptors of one producer (KIP-42)."""

    def __init__(
        self,
        interceptors: Sequence[ProducerInterceptor],
        checked: Callable[[ProducerRecord[Any, Any]], ProducerRecord[Any, Any]],
    ) -> None:
        """``checked`` raises ConfigError for a record that can't be sent, as the producer does for its arguments."""
        super().__init__(interceptors, "producer")
        self._checked = checked

    def on_send(self, record: ProducerRecord[Any, Any]) -> ProducerRecord[Any, Any]:
        """Return the record that the interceptors want sent in the place of this one."""
        for one in self._interceptors:
            try:
                changed: object = one.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send() returned {type(changed).__name__}: it must return the record to send")
                record = changed if changed is record else self._checked(changed)
            except BaseException as error:
                self._errors.log(one, "on_send", "the record that it was given goes on", error)
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None, headers: HeadersToSend) -> None:
        for one in self._interceptors:
            try:
                one.on_acknowledgement(metadata, error, headers)
            except BaseException as raised:
                self._errors.log(one, "on_acknowledgement", "the record's outcome stays what it is", raised)
