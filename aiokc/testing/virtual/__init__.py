"""An event loop with virtual time, and a network in memory for it."""
