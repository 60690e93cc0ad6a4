"""Whether two exceptions are equal in everything that they show."""

from __future__ import annotations

from typing import Any


def assert_equal_errors(one: BaseException | None, other: BaseException | None, *, with_cause: bool = True) -> None:
    """Check that both have the same type, text, args, fields and notes, and (``with_cause``) the very same cause."""
    assert one is not None
    assert other is not None
    assert type(one) is type(other)
    assert (str(one), repr(one), one.args) == (str(other), repr(other), other.args)
    assert _comparable(vars(one)) == _comparable(vars(other))
    if with_cause:
        assert one.__cause__ is other.__cause__
        assert one.__suppress_context__ is other.__suppress_context__


def _comparable(value: Any) -> Any:
    """Return ``value`` with what each exception in it shows in its place: exceptions are equal to themselves alone."""
    if isinstance(value, BaseException):
        return type(value), str(value), _comparable(vars(value))
    if isinstance(value, dict):
        return {key: _comparable(item) for key, item in value.items()}
    return value


def depth(error: BaseException) -> int:
    """Return the number of frames in its traceback."""
    frames, trace = 0, error.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    return frames
