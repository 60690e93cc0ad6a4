"""Every decision of the client, without I/O, clock, randomness or threads: time and chance come in as arguments."""
