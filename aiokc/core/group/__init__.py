"""Group membership for any group protocol: events, effects, and what the watchdog thread sends for a blocked loop."""
