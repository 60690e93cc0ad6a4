"""``TransactionalApplication``: sends in transactions, which it commits or aborts, in both styles of the API."""

from __future__ import annotations

from .application import Application


class TransactionalApplication(Application):
    pass
