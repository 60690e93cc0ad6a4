"""One module for each command: its HELP, its EXAMPLES, ``add_arguments(parser)`` and ``async run(context)``."""
