"""The classic group protocol's part of a membership: its requests, and leading a group."""
