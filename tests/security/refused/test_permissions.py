"""The permissions that each call of Client needs: with them it succeeds, and without any one of them it is refused.

They are those of the page about administration. The brokers are a real one, and those of the cluster in Python.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from aiokc import Client, TopicPartition
from aiokc.admin import ResetPlan, ToLatest
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, KafkaError
from aiokc.testing.kafka.secure.acls import CLUSTER_NAME

from ..actors.places import Place, Resource, place

__all__ = ["place"]

pytestmark = [pytest.mark.every_kafka, pytest.mark.any_loop(uvloop="long"), pytest.mark.timeout(60)]

Right: TypeAlias = tuple[str, Resource]
LATEST = -1


@dataclass(frozen=True)
class Scene:
    """A topic with records, a group that has committed, and a plan for it: both have the same name."""

    name: str
    plan: ResetPlan

    @property
    def zero(self) -> TopicPartition:
        return TopicPartition(self.name, 0)

    def of(self, resource: Resource) -> str:
        return CLUSTER_NAME if resource == "CLUSTER" else self.name


@dataclass(frozen=True)
class Call:
    """A call, and all that it needs."""

    needs: tuple[Right, ...]
    make: Callable[[Client, Scene], Awaitable[object]]


async def read(client: Client, scene: Scene) -> object:
    return [part async for part in client.read({scene.zero: (0, 1)})]


OF_GROUP: Right = ("DESCRIBE", "GROUP")
OF_TOPIC: Right = ("DESCRIBE", "TOPIC")
IN_GROUP: Right = ("READ", "GROUP")
READ: Right = ("READ", "TOPIC")
CALLS = {
    "log_dirs": Call((("DESCRIBE", "CLUSTER"),), lambda client, scene: client.log_dirs()),
    "list_topics": Call((OF_TOPIC,), lambda client, scene: client.list_topics([scene.name])),
    "describe_topics": Call((OF_TOPIC,), lambda client, scene: client.describe_topics([scene.name])),
    "list_offsets": Call((OF_TOPIC,), lambda client, scene: client.list_offsets({scene.zero: LATEST})),
    "topic_configs": Call((("DESCRIBE_CONFIGS", "TOPIC"),), lambda client, scene: client.topic_configs([scene.name])),
    "read": Call((READ,), read),
    "describe_groups": Call((OF_GROUP,), lambda client, scene: client.describe_groups([scene.name])),
    "group_offsets": Call((OF_GROUP,), lambda client, scene: client.group_offsets(scene.name)),
    "group_lag": Call((OF_GROUP,), lambda client, scene: client.group_lag([scene.name])),
    "committed": Call((OF_GROUP, OF_TOPIC), lambda client, scene: client.committed(scene.name, [scene.zero])),
    "commit": Call((IN_GROUP, READ), lambda client, scene: client.commit(scene.name, {scene.zero: 1})),
    "plan_reset": Call(
        (OF_GROUP, OF_TOPIC), lambda client, scene: client.plan_reset(scene.name, ToLatest(), partitions=[scene.zero])
    ),
    "apply_reset": Call((IN_GROUP, READ), lambda client, scene: client.apply_reset(scene.plan)),
    "remove_members": Call((IN_GROUP,), lambda client, scene: client.remove_members(scene.name, ["m"])),
    "delete_group_offsets": Call(
        (("DELETE", "GROUP"), READ), lambda client, scene: client.delete_group_offsets(scene.name, [scene.zero])
    ),
    "delete_groups": Call((("DELETE", "GROUP"),), lambda client, scene: client.delete_groups([scene.name])),
}
#: Not the code of a refusal, where all is allowed: the group has no such member.
FINE = {"remove_members": ErrorCode.UNKNOWN_MEMBER_ID}

each_call = pytest.mark.parametrize("name", CALLS)


async def error_of(call: Call, client: Client, scene: Scene) -> KafkaError | None:
    """Return the error that a call raises, or that its answer has; None without one."""
    try:
        found = await call.make(client, scene)
    except KafkaError as error:
        return error
    values = [*found.values()] if isinstance(found, dict) else []
    return next((value for value in values if isinstance(value, KafkaError)), None)


async def prepared(root: Client, name: str) -> Scene:
    """The topic is there already, with two records."""
    await root.commit(name, {TopicPartition(name, 0): 1})
    return Scene(name, await root.plan_reset(name, ToLatest()))


async def try_out(call: Call, fine: ErrorCode | None, scene: Scene, bob: Client, place: Place) -> None:
    """Without each one of the rights in turn, with no more than DESCRIBE in its place; then with all."""
    for operation, resource in call.needs:
        for right in call.needs:
            if right != (operation, resource):
                place.grant(right[1], scene.of(right[1]), right[0])
            elif operation in ("READ", "DELETE"):
                place.grant(resource, scene.of(resource), "DESCRIBE")
        error = await error_of(call, bob, scene)
        assert isinstance(error, AuthorizationFailed), (operation, resource, error)
        assert error.code is ErrorCode[f"{resource}_AUTHORIZATION_FAILED"]
        assert operation in str(error).removeprefix(error.code.name), error
        assert resource == "CLUSTER" or scene.name in str(error)
        place.clear()
    for operation, resource in call.needs:
        place.grant(resource, scene.of(resource), operation)
    error = await error_of(call, bob, scene)
    assert error is None or (isinstance(error, BrokerError) and error.code == fine), error


@each_call
async def test_what_a_call_needs(place: Place, topic_name: str, name: str) -> None:
    place.new_topic(topic_name)
    async with (
        Client(**place.options_of_clients("root")) as root,
        Client(**place.options_of_clients()) as bob,
    ):
        await try_out(CALLS[name], FINE.get(name), await prepared(root, topic_name), bob, place)


def test_the_page_has_the_same_calls() -> None:
    page = (Path(__file__).parents[3] / "docs" / "administration.md").read_text()
    table = page.partition("## Permissions")[2].strip().partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.partition(" | ")[0])}
    refused_to_nobody = {"list_groups", "describe_cluster"}
    assert named - CALLS.keys() == refused_to_nobody | {"read_columns"}, "which needs what read does"
    assert not CALLS.keys() - named
