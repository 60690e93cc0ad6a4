"""Runs the worlds of producers: a sample of their seeds, their planted bugs, and cancelled calls."""
