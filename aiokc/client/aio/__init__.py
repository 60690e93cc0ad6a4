"""What asyncio does not have: signals, a supervisor of tasks, slices of the loop's time."""
