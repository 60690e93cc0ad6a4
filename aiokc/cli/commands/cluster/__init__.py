"""Commands about brokers, topics and offsets."""
