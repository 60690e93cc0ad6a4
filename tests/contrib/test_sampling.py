"""Spans that the SDK's sampler would drop are not made; those that are made are those that it would have taken."""

from __future__ import annotations

import random
from collections.abc import Callable
from random import getrandbits
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    TraceIdRatioBased,
)

from aiokc.contrib.sampling import RootSampling

LIMIT = TraceIdRatioBased.TRACE_ID_LIMIT


class Every(TraceIdRatioBased):
    """A sampler of an application: it decides otherwise."""

    def should_sample(self, *args: Any, **options: Any) -> Any:
        return ALWAYS_ON.should_sample(*args, **options)


@pytest.mark.parametrize(
    ("sampler", "drops", "drops_all"),
    [
        (lambda: ALWAYS_OFF, True, True),
        (lambda: ParentBased(ALWAYS_OFF), True, False),
        (lambda: TraceIdRatioBased(0.0), True, False),
        (lambda: ParentBasedTraceIdRatio(0.0), True, False),
        (lambda: ALWAYS_ON, False, False),
        (lambda: ParentBased(ALWAYS_ON), False, False),
        (lambda: TraceIdRatioBased(1.0), False, False),
        (lambda: Every(0.0), False, False),
        (lambda: ParentBased(Every(0.0)), False, False),
    ],
)
def test_what_is_known_of_a_sampler(sampler: Callable[[], Sampler], drops: bool, drops_all: bool) -> None:
    tracer = TracerProvider(sampler=sampler()).get_tracer("t")
    roots = RootSampling(tracer)
    assert (roots.drops(), roots.drops_all) == (drops, drops_all)
    assert tracer.start_span("root").is_recording() is not drops, "as the sampler decides by itself"


def test_nothing_is_known_of_a_tracer_that_is_not_the_sdks() -> None:
    roots = RootSampling(trace.NoOpTracer())
    assert (roots.drops(), roots.drops_all) == (False, False)


@pytest.mark.parametrize("sampler", [TraceIdRatioBased(0.05), ParentBasedTraceIdRatio(0.05)])
def test_as_many_are_taken_as_the_sampler_takes_and_each_is_one_that_it_takes(sampler: Sampler) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=sampler, id_generator=RandomIdGenerator())
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("t")
    roots = RootSampling(tracer)
    random.seed(20_111_106)
    started = 0
    for _ in range(4_000):
        if not roots.drops():
            started += 1
            tracer.start_span("root").end()
    taken = [span.context.trace_id for span in exporter.get_finished_spans()]
    assert len(taken) == started, "none is dropped after all"
    assert 150 < len(taken) < 250
    assert all(trace_id & LIMIT < 0.05 * LIMIT for trace_id in taken)
    assert len({trace_id >> 64 for trace_id in taken}) == len(taken), "the other half is random as ever"
    other = RootSampling(tracer)
    while other.drops():
        pass
    assert tracer.start_span("root").is_recording(), "two of one tracer share its ids"


def test_under_a_span_the_sampler_is_asked() -> None:
    tracer = TracerProvider(sampler=ParentBased(ALWAYS_OFF)).get_tracer("t")
    roots = RootSampling(tracer)
    context = trace.SpanContext(getrandbits(128) | 1, 7, is_remote=True, trace_flags=trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(context)):
        assert not roots.drops()
        assert tracer.start_span("child").is_recording()
    assert roots.drops()
