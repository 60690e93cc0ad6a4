"""Conformance of what producers and transactions ask a broker."""
