"""Commits and committed offsets: waited for, not waited for, automatic, and in order."""
