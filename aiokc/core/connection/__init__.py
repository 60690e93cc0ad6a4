"""One connection: its first words, and the requests that are in flight on it."""
