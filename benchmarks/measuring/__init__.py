"""One measurement: the process that makes it, what it measures with, and whether to believe it."""
