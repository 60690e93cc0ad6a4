"""A consumer's membership in its group, and what decides its assignment when it has no group."""
