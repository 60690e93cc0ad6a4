"""Every decision of the client, without I/O, clock, randomness or threads: time and a random source are arguments."""
