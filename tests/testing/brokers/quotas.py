"""Client quotas, set as an administrator does (KIP-546): neither librdkafka nor kafka-python can."""

from __future__ import annotations

from aiokc.wire.primitives import Bool, Float64, Int16, Int32, String
from aiokc.wire.schema import Request, Response, Struct

from ..wire_client import connected


class EntityData(Struct):
    entity_type: String
    entity_name: String | None


class OpData(Struct):
    key: String
    value: Float64
    remove: Bool


class EntryData(Struct):
    entity: list[EntityData]
    ops: list[OpData]


class AlteredEntry(Struct):
    error_code: Int16
    error_message: String | None
    entity: list[EntityData]


class AlterClientQuotasResponse(Response, key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: Int32
    entries: list[AlteredEntry]


class AlterClientQuotasRequest(Request[AlterClientQuotasResponse], key=49, versions="0-1", flexible="1+"):
    entries: list[EntryData]
    validate_only: Bool


async def set_quota(bootstrap: str, client_id: str, key: str, value: float | None) -> None:
    """Set a quota of one client id (``consumer_byte_rate``: bytes in a second), or remove it."""
    op = OpData(key=key, value=value or 0.0, remove=value is None)
    entity = [EntityData(entity_type="client-id", entity_name=client_id)]
    async with connected(bootstrap) as admin:
        answer = await admin.ask(
            AlterClientQuotasRequest(entries=[EntryData(entity=entity, ops=[op])], validate_only=False)
        )
    (entry,) = answer.entries
    assert entry.error_code == 0, entry.error_message
