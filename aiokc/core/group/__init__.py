"""Group membership for any group protocol: events, effects, and what the watchdog thread says for a blocked loop."""
