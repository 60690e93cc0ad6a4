"""The messages that only administrators and the test cluster need; all others are in ``aiokc.wire``."""
