"""The brokers that a pool knows: each of them, all of them, and any of them."""
