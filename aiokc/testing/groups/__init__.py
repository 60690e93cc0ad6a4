"""The group coordinator: membership, rebalances and committed offsets, without network and clock."""
