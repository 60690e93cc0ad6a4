"""The messages that only brokers, producers and administrators need; those of consumers are in ``aiokc.wire``."""
