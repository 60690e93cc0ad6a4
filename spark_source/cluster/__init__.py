"""What the driver asks of Kafka: blocking calls, topics as they are now, and commits of finished batches."""
