"""Which ACL entry decides what a user may do, as StandardAuthorizer decides it."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc.testing import Acl
from aiokc.testing.security.authorizer import Acls, Operation, Resource


@pytest.mark.parametrize(
    ("entries", "operation", "name", "expected"),
    [
        ([], "Read", "t", False),
        ([Acl("alice", "Read", topic="t")], "Read", "t", True),
        ([Acl("alice", "Read", topic="t")], "Read", "t2", False),
        ([Acl("alice", "Read", topic="t")], "Write", "t", False),
        ([Acl("bob", "Read", topic="t")], "Read", "t", False),
        ([Acl("*", "Read", topic="t")], "Read", "t", True),
        ([Acl("alice", "Read", topic="*")], "Read", "t", True),
        ([Acl("alice", "Read", topic="t", prefixed=True)], "Read", "t2", True),
        ([Acl("alice", "Read", topic="t2", prefixed=True)], "Read", "t", False),
        ([Acl("alice", "All", topic="t")], "DescribeConfigs", "t", True),
        ([Acl("alice", "Read", group="t")], "Read", "t", False),
        # what one operation implies
        *[([Acl("alice", own, topic="t")], "Describe", "t", True) for own in ("Read", "Write", "Delete", "Alter")],
        ([Acl("alice", "Create", topic="t")], "Describe", "t", False),
        ([Acl("alice", "AlterConfigs", topic="t")], "DescribeConfigs", "t", True),
        ([Acl("alice", "Describe", topic="t")], "Read", "t", False),
        # what is denied
        ([Acl("alice", "Read", topic="t"), Acl("*", "Read", topic="t", deny=True)], "Read", "t", False),
        ([Acl("alice", "All", topic="*"), Acl("alice", "Read", topic="t", deny=True)], "Read", "t", False),
        ([Acl("alice", "All", topic="*"), Acl("alice", "Read", topic="t", deny=True)], "Describe", "t", True),
        (
            [Acl("alice", "Read", topic="t"), Acl("alice", "All", topic="t", prefixed=True, deny=True)],
            "Read",
            "t",
            False,
        ),
    ],
)
def test_what_entries_allow(entries: list[Acl], operation: str, name: str, expected: bool) -> None:
    wanted = {one.name.replace("_", "").lower(): one for one in Operation}[operation.lower()]
    assert Acls(entries).allows("alice", wanted, "topic", name) is expected


def test_super_users_and_clusters_without_acls() -> None:
    assert Acls([], ("root",)).allows("root", Operation.ALTER, "cluster", "kafka-cluster")
    assert not Acls([], ("root",)).allows("ANONYMOUS", Operation.READ, "topic", "t")
    assert Acls([]).allows("ANONYMOUS", Operation.READ, "topic", "t")
    assert Acls(None).allows("alice", Operation.READ, "topic", "t")


def test_what_is_revoked_and_granted_again() -> None:
    events = Resource("topic", "events")
    for entries in (None, [Acl("alice", "All", topic="*")], [Acl("alice", "Read", topic="events")]):
        acls = Acls(entries)
        acls.revoke("alice", events)
        acls.revoke("alice", events)
        assert not acls.allows("alice", Operation.DESCRIBE, "topic", "events")
        if entries is None or entries[0].topic == "*":
            assert acls.allows("alice", Operation.READ, "topic", "others")
            assert acls.allows("bob", Operation.READ, "topic", "events") is (entries is None)
        acls.grant(Acl("alice", "Read", topic="events"))
        assert acls.allows("alice", Operation.READ, "topic", "events")
        acls.withdraw(Acl("alice", "Read", topic="events"))
        wide = entries is None or entries[0].topic == "*"
        assert acls.allows("alice", Operation.READ, "topic", "events") is wide
    with pytest.raises(LookupError, match="there is no Acl"):
        Acls([]).withdraw(Acl("alice", "Read", topic="t"))


def test_operations_as_bits() -> None:
    acls = Acls([Acl("alice", "Read", topic="t")])
    assert acls.bits("alice", "topic", "t", 3576) == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert Acls(None).bits("alice", "topic", "t", 3576) == 3576
    assert Acls(None).bits("alice", "cluster", "kafka-cluster", 8096) == 8096


def test_some_topic() -> None:
    some = Acls(
        [Acl("alice", "Write", topic="a"), Acl("alice", "Write", topic="b"), Acl("*", "All", topic="a", deny=True)]
    )
    assert some.allows_some("alice", Operation.WRITE, "topic")
    assert not some.allows_some("bob", Operation.WRITE, "topic")
    assert not Acls([Acl("alice", "Read", topic="a")]).allows_some("alice", Operation.WRITE, "topic")
    assert Acls(None).allows_some("alice", Operation.WRITE, "topic")


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"operation": "Reed", "topic": "t"}, "operation 'Reed': it is one of All, Read, Write, .*AlterConfigs"),
        ({"operation": "Read"}, "name one of them"),
        ({"operation": "Read", "topic": "t", "group": "g"}, "name one of them"),
        ({"operation": "Read", "topic": "t", "cluster": True}, "name one of them"),
    ],
)
def test_an_entry_that_cannot_be(wrong: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Acl("alice", **wrong)
