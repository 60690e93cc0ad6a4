"""Transactions of a producer: the driver of their machine, the session for the sender, the application's calls."""
