"""Commands that read and write records."""
