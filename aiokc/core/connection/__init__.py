"""Connections without I/O: the handshake, the requests in flight, and which broker to ask."""
