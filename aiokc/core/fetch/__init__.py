"""Fetching: what the next Fetch asks for, what its response means, and what is buffered."""
