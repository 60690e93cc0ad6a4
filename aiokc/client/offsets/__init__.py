"""Committing offsets (waited for, not waited for, and automatic), in order, and reading committed offsets."""
