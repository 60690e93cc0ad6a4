"""Commands about the command itself, which need no cluster."""
