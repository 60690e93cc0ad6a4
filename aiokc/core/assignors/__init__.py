"""The built-in assignors, as pure functions: which member of a group gets which partitions."""
