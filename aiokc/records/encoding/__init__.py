"""From records to bytes: the batches of producers and, for tests, those that brokers write."""
