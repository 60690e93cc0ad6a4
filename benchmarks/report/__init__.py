"""What a run has found: its JSON, its summary and aims, its tables and its plot."""
