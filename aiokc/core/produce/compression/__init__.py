"""How batches are compressed: how many records go into one, and when it is a thread that compresses it."""
