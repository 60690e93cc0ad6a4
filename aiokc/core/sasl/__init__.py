"""SASL without I/O: what the client says in each mechanism, and the dialogue that carries it (KIP-43, KIP-152)."""
