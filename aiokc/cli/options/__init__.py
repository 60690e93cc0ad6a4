"""What options may say, and what it means."""
