"""Mutation testing: small wrong changes to the code, one at a time, and whether the fast tests notice them."""
