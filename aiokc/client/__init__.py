"""The public Consumer, Producer and Client, and the drivers behind them: tasks, timers, retries. aiokc.core decides."""
