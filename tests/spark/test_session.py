"""The Spark that the tests share: none of its calls waits for ever."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from socket import SocketIO
from typing import Any

import pytest
from pyspark.sql import SparkSession

from .session import CALL_SECONDS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def test_a_call_that_is_never_answered_ends_and_the_next_one_is_answered(spark: SparkSession) -> None:
    client: Any = spark.sparkContext._gateway._gateway_client  # type: ignore[union-attr]
    assert client.get_thread_connection().socket.gettimeout() == CALL_SECONDS
    streams = spark.streams
    streams.resetTerminated()

    client.get_thread_connection().socket.settimeout(0.5)
    with pytest.raises(Exception, match=r"calling .*awaitAnyTermination"):
        streams.awaitAnyTermination()  # there is none

    assert spark.range(3).count() == 3
    assert client.get_thread_connection().socket.gettimeout() == CALL_SECONDS


class Limit(BaseException):
    """Stands for pytest's own, which is no Exception either."""


def test_a_call_that_a_time_limit_interrupts_leaves_no_answer_to_the_next_one(spark: SparkSession) -> None:
    def end(number: int, frame: object) -> None:
        raise Limit

    def interrupt_the_wait() -> None:
        ends = time.monotonic() + 60
        while sys._current_frames()[main].f_code is not SocketIO.readinto.__code__:  # it waits for no answer yet
            if time.monotonic() > ends:
                return
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGUSR1)

    def interrupted() -> None:
        alarm.start()
        streams.awaitAnyTermination(20)

    streams = spark.streams
    streams.resetTerminated()
    main, alarm = threading.get_ident(), threading.Thread(target=interrupt_the_wait)
    before = signal.signal(signal.SIGUSR1, end)
    try:
        # With its frames, and so with the connection that they use: as pytest keeps them.
        with pytest.raises(Limit) as kept:
            interrupted()
    finally:
        alarm.join()
        signal.signal(signal.SIGUSR1, before)
    assert [spark.range(count).count() for count in (1, 2, 3)] == [1, 2, 3]
    assert any("py4j" in str(entry.path) for entry in kept.traceback)
