"""Compressed batches that the C extension unpacks, many by one call, and the libraries that it does so with."""
