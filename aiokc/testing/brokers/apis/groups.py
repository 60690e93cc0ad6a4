"""Handles all requests about groups: passes each to the coordinator in ``aiokc.testing.groups``, awaits its answer."""

from __future__ import annotations

import asyncio
from typing import Any

from ....wire import Response
from ..call import Call


async def ask_coordinator(call: Call[Any]) -> Response:
    """Pass the request to the coordinator and wait for its answer, which may come now or later.

    Where the member repeats the request meanwhile, the repeated request gets the answer, and this one gets none.
    """
    cluster, node_id = call.cluster, call.node.node_id
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def reply(response: Response) -> None:
        if not answered.done():  # the future is cancelled if the client has disconnected meanwhile
            answered.set_result(response)

    cluster.groups.handle(
        call.request,
        client_id=call.client_id,
        client_host=call.client_host,
        version=call.version,
        now=cluster.now(),
        reply=reply,
        coordinates=lambda group_id: cluster.coordinators.of(group_id) == node_id,
    )
    cluster.timers_changed()
    return await answered
