"""One broker: its connections, its requests, and the faults that can be put into them."""
