"""TLS: contexts from PEM, JKS and PKCS12, built off the loop and anew when files change; names; what failures mean."""
