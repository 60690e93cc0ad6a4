"""Committed offsets: the requests that store them and read them back."""
