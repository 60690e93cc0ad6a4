"""Positions of assigned partitions: finding the first one, validating it with a new leader, and resetting it."""
