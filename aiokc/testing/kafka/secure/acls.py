"""``Acl``, and the requests that create, find and delete ACLs: CreateAcls, DescribeAcls, DeleteAcls."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiokc.error_codes import ErrorCode
from aiokc.errors import broker_error

from ..exchange import Answer, Exchange, string

_DESCRIBE: Final = (29, 1)  # api key, version
_CREATE: Final = (30, 1)
_DELETE: Final = (31, 1)
_RESOURCES: Final = {"TOPIC": 2, "GROUP": 3, "CLUSTER": 4, "TRANSACTIONAL_ID": 5, "DELEGATION_TOKEN": 6}
_PATTERNS: Final = {"LITERAL": 3, "PREFIXED": 4}
_PERMISSIONS: Final = {"DENY": 2, "ALLOW": 3}
_OPERATIONS: Final = {
    "ALL": 2,
    "READ": 3,
    "WRITE": 4,
    "CREATE": 5,
    "DELETE": 6,
    "ALTER": 7,
    "DESCRIBE": 8,
    "CLUSTER_ACTION": 9,
    "DESCRIBE_CONFIGS": 10,
    "ALTER_CONFIGS": 11,
    "IDEMPOTENT_WRITE": 12,
}
#: The only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Acl:
    """What a user may do, or with ``permission="DENY"`` may not do, with a resource; all names as in Kafka's tools.

    `resource` is TOPIC, GROUP, CLUSTER (whose name is "kafka-cluster"), TRANSACTIONAL_ID or DELEGATION_TOKEN. `name`
    may be "*", or the start of a name with ``pattern="PREFIXED"``. `user` is a name without "User:", or "*".
    """

    user: str
    operation: str
    resource: str
    name: str = CLUSTER_NAME
    permission: str = "ALLOW"
    pattern: str = "LITERAL"

    def __post_init__(self) -> None:
        for value, known in (
            (self.resource, _RESOURCES),
            (self.operation, _OPERATIONS),
            (self.permission, _PERMISSIONS),
            (self.pattern, _PATTERNS),
        ):
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(known)}")

    def encoded(self) -> bytes:
        """Return its bytes in a request: those of a new ACL and of a filter for exactly this one are the same."""
        return b"".join(
            (
                struct.pack(">b", _RESOURCES[self.resource]),
                string(self.name),
                struct.pack(">b", _PATTERNS[self.pattern]),
                string(f"User:{self.user}"),
                string("*"),  # from any host
                struct.pack(">bb", _OPERATIONS[self.operation], _PERMISSIONS[self.permission]),
            )
        )


def create(address: str, acls: Sequence[Acl]) -> None:
    """Create ACLs. The brokers obey them a moment later. Raises BrokerError and OSError."""
    _change(address, _CREATE, acls)


def delete(address: str, acls: Sequence[Acl]) -> None:
    """Delete ACLs; those that are not there are no error. The brokers obey a moment later."""
    _change(address, _DELETE, acls)


def in_force(address: str, acl: Acl) -> bool:
    """Return whether the broker at `address` obeys this ACL now."""
    with Exchange(address, timeout=_SECONDS) as exchange:
        answer = exchange.ask(*_DESCRIBE, acl.encoded())
    answer.int32()  # throttle time
    code, message = answer.int16(), answer.string()
    if code != ErrorCode.NONE:
        raise broker_error(code, f"DescribeAcls: {message}")
    return answer.int32() > 0


def _change(address: str, api: tuple[int, int], acls: Sequence[Acl]) -> None:
    body = struct.pack(">i", len(acls)) + b"".join(acl.encoded() for acl in acls)
    with Exchange(address, timeout=_SECONDS) as exchange:
        answer = exchange.ask(*api, body)
    answer.int32()  # throttle time
    for acl in acls[: answer.int32()]:
        code, message = answer.int16(), answer.string()
        if code != ErrorCode.NONE:
            raise broker_error(code, f"{acl}: {message}")
        if api == _DELETE:
            _check_deleted(acl, answer)


def _check_deleted(acl: Acl, answer: Answer) -> None:
    for _ in range(answer.int32()):
        code, message = answer.int16(), answer.string()
        if code != ErrorCode.NONE:
            raise broker_error(code, f"{acl}: {message}")
        answer.int8()  # resource type, name, pattern, principal, host, operation, permission
        answer.string()
        answer.int8()
        answer.string()
        answer.string()
        answer.int8()
        answer.int8()
