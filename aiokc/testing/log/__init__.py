"""Topics and their logs: what brokers store, and what they remember of who wrote and reads it."""
