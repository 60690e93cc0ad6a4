"""The snapshot of the cluster: brokers, topics, partitions and leaders, and what a pattern matches in it."""
