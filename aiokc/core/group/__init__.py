"""Membership in a group, whichever protocol it speaks: events, effects, and the watch over a blocked loop."""
