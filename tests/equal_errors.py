"""When two exceptions say the same."""

from __future__ import annotations


def assert_equal_errors(one: BaseException | None, other: BaseException | None, *, with_cause: bool = True) -> None:
    """Both have the same type, text, args, fields and notes, and (``with_cause``) the very same cause."""
    assert one is not None
    assert other is not None
    assert type(one) is type(other)
    assert (str(one), repr(one), one.args) == (str(other), repr(other), other.args)
    assert vars(one) == vars(other)
    if with_cause:
        assert one.__cause__ is other.__cause__
        assert one.__suppress_context__ is other.__suppress_context__


def depth(error: BaseException) -> int:
    """How many frames its traceback has."""
    frames, trace = 0, error.__traceback__
    while trace is not None:
        frames, trace = frames + 1, trace.tb_next
    return frames
