"""Transactions of a producer (KIP-98, KIP-890), without I/O: states, control requests, what each answer means."""
