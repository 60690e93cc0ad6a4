"""The assignors: which member of a group gets which partitions."""
