"""Sends what a producer decided on: one connection to each broker, deliveries, callbacks, who waits for memory."""
