"""The messages that a broker must know and a consumer does not: in the notation of ``aiokc.wire``."""
