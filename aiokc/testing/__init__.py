"""The public names for testing a consumer: an embedded Kafka cluster that injects faults on demand.

``Cluster`` is a Kafka cluster in Python, in the test's own process. ``ApiKey`` and ``ErrorCode`` name the requests to
intercept and the errors to answer; ``aiokc.testing.faults`` has all other faults of requests. ``NewRecord`` is a record
to append. ``Certificates``, ``Listener``, ``Acl``, ``IdP`` and ``TokenRules`` are for clusters with TLS, SASL and ACLs.
A method of the cluster raises ``Refusal`` for what a broker would refuse, with its ``code``.
``aiokc.testing.kafka`` runs a local Apache Kafka. aiokc's own tests and benchmarks run against both.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ..error_codes import ErrorCode
from ..records import NewRecord
from .brokers.api_keys import ApiKey
from .refusal import Refusal

if TYPE_CHECKING:
    from .cluster.embedded_cluster import Cluster
    from .security.authorizer import Acl
    from .security.certificate_authority import Certificates
    from .security.idp import IdP
    from .security.jwt import TokenRules
    from .security.listener import Listener

__all__ = [
    "Acl",
    "ApiKey",
    "Certificates",
    "Cluster",
    "ErrorCode",
    "IdP",
    "Listener",
    "NewRecord",
    "Refusal",
    "TokenRules",
]

#: Imported at first use: a program that starts a real Kafka does not pay for the import of a cluster.
_LATER: Final = {
    "Cluster": ".cluster.embedded_cluster",
    "Acl": ".security.authorizer",
    "Certificates": ".security.certificate_authority",
    "IdP": ".security.idp",
    "TokenRules": ".security.jwt",
    "Listener": ".security.listener",
}


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(import_module(_LATER[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
