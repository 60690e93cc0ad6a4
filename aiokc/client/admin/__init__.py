"""Client's administrative calls: clusters, topics, groups, offsets; what they send, to which broker, and retries."""
