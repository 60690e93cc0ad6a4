"""Consumer groups: each request goes to the coordinator in ``groups``, whose answer comes now or later."""

from __future__ import annotations

import asyncio
from typing import Any

from ....wire import Response
from ..call import Call


async def ask_coordinator(call: Call[Any]) -> Response:
    """Wait for the answer; a member that asks once more meanwhile gets it there, and this one nothing."""
    cluster, node_id = call.cluster, call.node.node_id
    answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()

    def reply(response: Response) -> None:
        if not answered.done():  # it is cancelled where the client has gone meanwhile
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
