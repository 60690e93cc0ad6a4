"""How the clients are configured: the same options for all, all partitions from offset 0."""
