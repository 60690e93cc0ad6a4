"""Spark's own Kafka source and aiokc's: ``python -m benchmarks.spark``."""
