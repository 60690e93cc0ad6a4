"""The options of a query: each is obeyed or refused, and none needs the cluster to be checked."""
