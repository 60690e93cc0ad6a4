"""A connection from TLS to its last SASL session: dialogues, re-authentication, and what its end means."""
