"""Drivers and the public Consumer and Client: tasks, timers, retries. Every decision is made in aiokc.core."""
