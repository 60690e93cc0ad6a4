"""Options as they are written outside of Python: in the environment, and for other clients."""
