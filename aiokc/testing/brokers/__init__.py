"""The brokers: connections, requests and answers, and the state that all brokers of a cluster share."""
