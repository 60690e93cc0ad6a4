"""The consumer protocol (KIP-848) of a group: its machine tied to the coordinator and the metadata."""
