"""``aiokc``, the command: a cluster, its topics, records and groups from a terminal or a script."""
