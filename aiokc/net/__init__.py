"""Network I/O: sockets and connections. The only package of the client that opens a socket."""
