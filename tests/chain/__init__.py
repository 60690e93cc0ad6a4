"""A chain of processes on three brokers that are killed, paused and moved: each record comes through exactly once."""
