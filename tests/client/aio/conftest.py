"""Which files of this folder the running Python can't have."""

from __future__ import annotations

import asyncio

collect_ignore = [] if hasattr(asyncio, "eager_task_factory") else ["test_eager_tasks.py"]
