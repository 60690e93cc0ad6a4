"""The coordinator of groups: membership, rebalances, committed offsets."""
