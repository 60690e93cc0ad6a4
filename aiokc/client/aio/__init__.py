"""Tools that asyncio does not have: signals, a supervisor of tasks, time slices, a guard for one task at a time."""
