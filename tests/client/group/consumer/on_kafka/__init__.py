"""Members of the consumer protocol (KIP-848) on a real Kafka."""
