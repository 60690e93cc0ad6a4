"""Handles all requests about groups: passes each to the coordinator in ``aiokc.testing.groups``, awaits its answer."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from ....error_codes import ErrorCode
from ....wire import Response
from ...security.authorizer import Operation
from ..call import Call
from ..refusals import refused


async def ask_coordinator(call: Call[Any]) -> Response:
    """Pass the request to the coordinator and wait for its answer, which may come now or later.

    Where the member repeats the request meanwhile, the repeated request gets the answer, and this one gets none. So the
    wait ends with the connection: the coordinator has the request, and nobody would hear the answer.
    """
    cluster, node_id = call.cluster, call.node.node_id
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def reply(response: Response) -> None:
        if not answered.done():  # the future is cancelled if the broker was taken down meanwhile
            answered.set_result(response)

    cluster.groups.handle(
        call.request,
        client_id=call.client_id,
        client_host=call.client_host,
        version=call.version,
        now=cluster.now(),
        reply=reply,
        coordinates=lambda group_id: cluster.coordinators.of(group_id) == node_id,
        may_describe=lambda topic: call.allows(Operation.DESCRIBE, "topic", topic),
    )
    cluster.timers_changed()
    give_up = partial(_give_up, answered)
    call.lost.add_done_callback(give_up)
    try:
        return await answered
    finally:
        call.lost.remove_done_callback(give_up)


def _give_up(answered: asyncio.Future[Response], lost: asyncio.Future[None]) -> None:
    answered.cancel()


async def ask_by_feature(call: Call[Any]) -> Response:
    """Pass a request of the consumer protocol on, if the cluster has the protocol's feature switched on (KIP-848)."""
    if call.cluster.has_consumer_groups:
        return await ask_coordinator(call)
    return refused(call.request, call.version, ErrorCode.UNSUPPORTED_VERSION)
