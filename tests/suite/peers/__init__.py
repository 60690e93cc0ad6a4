"""Other clients' packages: what the suite does without them, and what it does about their flaws."""
