"""Fetching: which Fetch requests to send, what their responses mean, and the records buffered from them."""
