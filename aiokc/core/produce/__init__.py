"""The pure part of a producer: batches that are filled, sequences, and which partition a record goes to."""
