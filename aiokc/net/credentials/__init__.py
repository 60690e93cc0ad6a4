"""The client's credentials: passwords, tokens and tickets, each asked for when needed and kept no longer than valid."""
