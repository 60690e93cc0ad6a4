"""``python -m aiokc`` is the command ``aiokc``."""

from .cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
