"""The brokers' side of security: listeners with TLS and SASL, users, tokens, ACLs, an identity provider, login faults.

It shares no code with the client: what both sides must agree on is in the RFCs and in Kafka's KIPs.
"""
