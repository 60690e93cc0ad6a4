"""Whether the SDK's sampler would drop a span that has no parent, found out without the span: that costs 15 µs."""

from __future__ import annotations

import sys
from random import getrandbits
from threading import local
from typing import Any, Final

from opentelemetry.context import get_current
from opentelemetry.trace import Tracer, get_current_span

_SAMPLERS: Final = "opentelemetry.sdk.trace.sampling"
#: The lower bits of a trace id, at which the SDK's sampler by ratio looks.
_BITS: Final = 64


class RootSampling:
    """Decides about the spans of one tracer that have no parent, as its sampler does, where that one is the SDK's own.

    Those are AlwaysOff, TraceIdRatioBased, and ParentBased around one of them: they look at nothing but half of the
    trace id, which is random. So ``drops()`` draws that half, and only if the sampler would take it, there is something
    to make; the span gets an id with it. Of any other sampler, and of an ambient span, it says nothing: False.

    ``drops_all`` is whether every span is dropped, whatever its parent.
    """

    def __init__(self, tracer: Tracer) -> None:
        sampler: Any = getattr(tracer, "sampler", None)
        self.drops_all = _is_a(sampler, "StaticSampler") and sampler.get_description() == "AlwaysOffSampler"
        self._bound = _bound(sampler)
        self._ids = _chosen_ids(tracer) if self._bound else None

    def drops(self) -> bool:
        """Whether the next span would be dropped. If not, start it now, in this thread."""
        bound, ids = self._bound, self._ids
        # In the caches of the processor is the batch that was just read, and not this code: each function that is
        # called here costs as much as three elsewhere. Without an ambient span, there is most often no context at all.
        if bound is None or (get_current() and get_current_span().get_span_context().is_valid):
            return self.drops_all
        if ids is None:
            return bound == 0
        drawn = getrandbits(_BITS)
        if drawn >= bound:
            return True
        ids.choose(drawn)
        return False


class _ChosenIds:
    """A tracer's generator of ids, of which a thread may choose the lower half of the next trace id."""

    def __init__(self, ids: Any) -> None:
        self._ids = ids
        self._chosen = local()

    def choose(self, half: int) -> None:
        self._chosen.half = half

    def generate_trace_id(self) -> int:
        trace_id: int = self._ids.generate_trace_id()
        half: int | None = vars(self._chosen).pop("half", None)
        return trace_id if half is None else trace_id >> _BITS << _BITS | half

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ids, name)


def _chosen_ids(tracer: Any) -> _ChosenIds | None:
    """The tracer's generator of ids from now on. Newer SDKs return this tracer again to whoever asks for its name."""
    ids = getattr(tracer, "id_generator", None)
    if ids is not None and not isinstance(ids, _ChosenIds):
        ids = tracer.id_generator = _ChosenIds(ids)
    return ids


def _bound(sampler: Any) -> int | None:
    """Below which trace ids (their lower 64 bits) the sampler takes spans without a parent; None: it is another one."""
    if _is_a(sampler, "ParentBased"):
        sampler = getattr(sampler, "_root", None)
    if _is_a(sampler, "StaticSampler"):
        return 0 if sampler.get_description() == "AlwaysOffSampler" else None
    return sampler.bound if _is_a(sampler, "TraceIdRatioBased") else None


def _is_a(sampler: Any, name: str) -> bool:
    """Whether it decides as the SDK's sampler of that name does: subclasses that decide otherwise are none."""
    known = getattr(getattr(_samplers(), name, None), "should_sample", None)
    return known is not None and getattr(type(sampler), "should_sample", None) is known


def _samplers() -> Any:
    """The SDK's module, which is loaded where a tracer of it is there; this package needs its API alone."""
    return sys.modules.get(_SAMPLERS)
