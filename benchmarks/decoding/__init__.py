"""Decoding alone: bytes to objects, without a broker."""
