"""Positions: where to start, whether the log still agrees, and what to do when it does not."""
