"""The doctor's steps: what looks at names, ports, certificates, logins, metadata, listeners, topics and groups."""
