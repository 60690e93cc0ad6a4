"""Commands about consumer groups and what they have committed."""
