"""The server's halves of the SASL mechanisms, and the authentication of a connection, which runs them."""
