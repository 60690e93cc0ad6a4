"""Where tokens come from: the application's provider, OIDC, a file, AWS; asked ahead of time and shared by clients."""
