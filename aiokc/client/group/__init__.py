"""A consumer's membership in its group; and what stands in for it without a group."""
