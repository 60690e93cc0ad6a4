"""The Spark that the tests share: none of its calls waits for ever."""

from __future__ import annotations

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
