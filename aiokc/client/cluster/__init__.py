"""The connections to a cluster, its metadata, and the requests that have to find their broker first."""
