"""A cluster of brokers in Python: its life, its faults, and its users that are not async."""
