"""``Acls``: who may do what, as Kafka's StandardAuthorizer decides; ``Acl`` is one entry, as kafka-acls.sh adds it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Literal, TypeAlias

ResourceType: TypeAlias = Literal["topic", "group", "transactional_id", "cluster"]

ANONYMOUS: Final = "ANONYMOUS"
CLUSTER_NAME: Final = "kafka-cluster"
ANYTHING: Final = "*"


class Operation(IntEnum):
    """Kafka's AclOperation, with its codes."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_IMPLIES: Final = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}


def operation_of(name: str | Operation) -> Operation:
    """Return the operation that kafka-acls.sh calls "Read", "DescribeConfigs", ... Raises ValueError."""
    if isinstance(name, Operation):
        return name
    found = {one.name.replace("_", ""): one for one in Operation}.get(name.replace("_", "").upper())
    if found is None:
        names = ", ".join(one.name.title().replace("_", "") for one in Operation)
        raise ValueError(f"operation {name!r}: it is one of {names}")
    return found


@dataclass(frozen=True)
class Resource:
    """What an entry is about: one resource, all whose names begin with ``name``, or with the name "*" all."""

    kind: ResourceType
    name: str
    prefixed: bool = False

    def covers(self, kind: ResourceType, name: str) -> bool:
        if kind != self.kind:
            return False
        return name.startswith(self.name) if self.prefixed else self.name in (name, ANYTHING)


@dataclass(frozen=True)
class Acl:
    """One entry: ``user`` ("*": every user) may do ``operation``, or with ``deny`` may not, on one kind of resource.

    Acl("alice", "Read", topic="events")
    Acl("alice", "Read", group="billing-", prefixed=True)
    Acl("*", "Describe", topic="*")
    Acl("alice", "IdempotentWrite", cluster=True)
    """

    user: str
    operation: str | Operation
    topic: str | None = None
    group: str | None = None
    transactional_id: str | None = None
    cluster: bool = False
    prefixed: bool = False
    deny: bool = False

    def __post_init__(self) -> None:
        operation_of(self.operation)
        named = [self.topic is not None, self.group is not None, self.transactional_id is not None, self.cluster]
        if sum(named) != 1:
            raise ValueError("an Acl is about a topic, a group, a transactional_id or the cluster: name one of them")

    @property
    def resource(self) -> Resource:
        if self.cluster:
            return Resource("cluster", CLUSTER_NAME)
        if self.topic is not None:
            return Resource("topic", self.topic, self.prefixed)
        if self.group is not None:
            return Resource("group", self.group, self.prefixed)
        return Resource("transactional_id", self.transactional_id or "", self.prefixed)

    def decides(self, user: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether this entry is about a request of ``user`` to do ``operation``."""
        if self.user not in (user, ANYTHING) or not self.resource.covers(kind, name):
            return False
        own = operation_of(self.operation)
        implied = not self.deny and own in _IMPLIES.get(operation, ())
        return own in (operation, Operation.ALL) or implied


class Acls:
    """The entries of a cluster. Without any list (None) everybody may do everything that is not revoked."""

    def __init__(self, entries: Iterable[Acl] | None, super_users: Collection[str] = (ANONYMOUS,)) -> None:
        self._is_open = entries is None
        self._entries = list(entries or ())
        self._super_users = frozenset(super_users)

    def allows(self, user: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a user may do this: no entry denies it, and one allows it."""
        if user in self._super_users:
            return True
        deciding = [entry for entry in self._entries if entry.decides(user, operation, kind, name)]
        return not any(entry.deny for entry in deciding) and (self._is_open or bool(deciding))

    def allows_some(self, user: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a user may do this with at least one resource of the kind (KIP-679)."""
        if user in self._super_users or self._is_open:
            return True
        mine = [entry for entry in self._entries if entry.resource.kind == kind and not entry.deny]
        return any(self.allows(user, operation, kind, entry.resource.name) for entry in mine)

    def bits(self, user: str, kind: ResourceType, name: str, all_bits: int) -> int:
        """Return the operations that a user may do with a resource, as bits among ``all_bits`` (KIP-430)."""
        allowed = [one for one in Operation if all_bits >> one & 1 and self.allows(user, one, kind, name)]
        return sum(1 << one for one in allowed)

    def grant(self, entry: Acl) -> None:
        """Add an entry. One that allows something ends what ``revoke`` took from this user on this resource."""
        if not entry.deny:
            self._entries = [one for one in self._entries if one != _revoked(entry.user, entry.resource)]
        self._entries.append(entry)

    def withdraw(self, entry: Acl) -> None:
        """Remove an entry. Raises LookupError where there is none like it."""
        if entry not in self._entries:
            raise LookupError(f"there is no {entry}")
        self._entries.remove(entry)

    def revoke(self, user: str, resource: Resource) -> None:
        """Take everything on a resource from a user, however it was granted, until ``grant`` gives some of it back."""
        denied = _revoked(user, resource)
        kept = [one for one in self._entries if one.deny or one.user != user or one.resource != resource]
        self._entries = [one for one in kept if one != denied] + [denied]


def _revoked(user: str, resource: Resource) -> Acl:
    return Acl(
        user,
        Operation.ALL,
        topic=resource.name if resource.kind == "topic" else None,
        group=resource.name if resource.kind == "group" else None,
        transactional_id=resource.name if resource.kind == "transactional_id" else None,
        cluster=resource.kind == "cluster",
        prefixed=resource.prefixed,
        deny=True,
    )
