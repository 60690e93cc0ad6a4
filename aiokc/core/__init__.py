"""Every decision of the client, with no I/O, clock, chance or thread: time and randomness come in as arguments."""
