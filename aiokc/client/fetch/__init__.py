"""From Fetch requests to the records and columns that the application gets."""
