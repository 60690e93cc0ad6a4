"""Benchmarks of aiokc and other Kafka consumers, measured in the same way: ``python -m benchmarks``, see README.md."""
