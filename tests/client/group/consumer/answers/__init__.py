"""What a member of the consumer protocol (KIP-848) makes of its coordinator's answers."""
