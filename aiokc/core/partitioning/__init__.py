"""Which partition a record goes to that names none: by its key, or by the sticky choice. Pure."""
