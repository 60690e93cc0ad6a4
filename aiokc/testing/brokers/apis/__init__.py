"""What answers each API."""
