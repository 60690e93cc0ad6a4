"""How many examples properties are tried with: the same few in every `make test`, others and more in `make test-long`.

Where sanitizers make each of them cost ten times as much, `make test` tries fewer.

Hypothesis' own limits of time are off: the machine may be slow, or busy with other work.
"""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

SAMPLE: Final = "sample"
FEW: Final = "few"
THOROUGH: Final = "thorough"

_SLOW: Final = (HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example)

settings.register_profile(SAMPLE, max_examples=40, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile(FEW, max_examples=10, deadline=None, suppress_health_check=_SLOW, derandomize=True)
settings.register_profile(THOROUGH, max_examples=200, deadline=None, suppress_health_check=_SLOW)


def examples(sample: int, *, thorough: int) -> settings:
    """Return the settings of a test that tries this many."""
    is_thorough = settings.get_current_profile_name() == THOROUGH
    return settings(max_examples=thorough if is_thorough else sample)
