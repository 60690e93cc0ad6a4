"""Simulation: an asyncio event loop with virtual time, and a network in memory."""
