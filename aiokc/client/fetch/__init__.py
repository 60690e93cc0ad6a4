"""From Fetch requests to what the user gets."""
