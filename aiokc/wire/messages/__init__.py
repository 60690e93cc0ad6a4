"""The messages of the APIs that consumers and producers use: one class for all versions, fields named as in Kafka."""
