"""The cluster as its brokers describe it: brokers, topics, partitions, leaders."""
