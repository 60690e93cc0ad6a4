"""What the consumer reads: its subscription, its assignment, and where each partition stands."""
