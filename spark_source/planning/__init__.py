"""Which offsets a query reads: where it starts and ends, its micro-batches, and their tasks."""
