"""TransactionalLoop: reads batches, and commits what is made of each one together with its offsets, exactly once."""
