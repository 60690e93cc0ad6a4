"""What the commands that read records share: where to begin and to end, decoding, filters and formats."""
