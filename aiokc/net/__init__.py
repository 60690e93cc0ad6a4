"""Sockets: the only place of the client that opens one."""
