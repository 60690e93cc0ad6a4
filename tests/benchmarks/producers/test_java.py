from __future__ import annotations

import pytest

from benchmarks.producers.java import Report, parse

WINDOW = "499 records sent, 99.8 records/sec (0.01 MB/sec), 9.0 ms avg latency, 200.0 ms max latency."
WHOLE = (
    "300000 records sent, 1165501.4 records/sec (111.15 MB/sec), 4.15 ms avg latency, 310.00 ms max latency, "
    "3 ms 50th, 14 ms 95th, 31 ms 99th, 44 ms 99.9th."
)


def test_the_figures_are_those_of_the_whole_run() -> None:
    found = Report(records=300_000, records_per_second=1_165_501.4, p50=3.0, p99=31.0)
    assert parse(f"{WINDOW}\n{WHOLE}\n") == found
    assert parse(f"{WINDOW}\n{WHOLE}\nsomething else") == found


@pytest.mark.parametrize("output", ["", WINDOW])
def test_output_without_figures_is_an_error(output: str) -> None:
    with pytest.raises(ValueError, match="no figures"):
        parse(output)
