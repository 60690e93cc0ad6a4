"""The client's view of the cluster: metadata, and requests that need to find their broker."""
