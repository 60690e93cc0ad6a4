"""How fast aiokc and other Kafka consumers read, measured alike: ``python -m benchmarks``, see README.md."""
