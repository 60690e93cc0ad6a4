"""What a producer decides: batches, their sequences, when and where they are sent, what each answer means. Pure."""
