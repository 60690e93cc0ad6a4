"""The embedded cluster as tests use it: starting and stopping, faults, and calls from synchronous code."""
