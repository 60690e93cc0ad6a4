"""The messages that only the test cluster knows: compared with Kafka's own definitions, encoded and decoded."""

from __future__ import annotations

from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.testing.messages import topic_admin
from aiokc.wire import Message, decode, encode
from tests.suite.examples import examples
from tests.wire.messages import structs
from tests.wire.test_upstream import compare, released

MODULES: tuple[ModuleType, ...] = (topic_admin,)
MESSAGES = [
    item
    for module in MODULES
    for item in vars(module).values()
    if isinstance(item, type) and issubclass(item, Message) and "min_version" in vars(item)
]


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_the_definitions_of_the_released_client(cls: type[Message]) -> None:
    assert compare(cls, released()[cls.__name__]) == []


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
@examples(5, thorough=20)
@given(data=st.data())
def test_there_and_back_in_every_version(cls: type[Message], data: st.DataObject) -> None:
    for version in range(cls.min_version, cls.max_version + 1):
        message = data.draw(structs(cls, version))
        assert decode(cls, memoryview(encode(message, version)), version) == message
