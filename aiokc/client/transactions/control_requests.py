"""Sends the control requests of one transactional id to the right coordinator, in the right version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any

from ...config import ProducerConfig
from ...core.cluster.coordinators import KeyType
from ...core.transactions.events import Answered, ControlRequest, NotAnswered, TxnOffsetCommit
from ...core.transactions.messages import OFFSETS_NAME_MEMBERS_FROM, answer, wording
from ...core.versions import api_name
from ...error_codes import ErrorCode
from ...errors import ConnectionFailed, KafkaError, RequestTimedOut, UnsupportedVersion, broker_error
from ...net.login.endings import SessionEnded
from ...net.options import SOFTWARE
from ...net.pool import Pool, Purpose
from ...wire import Request
from ...wire.messages.discovery import ApiVersionsRequest
from ...wire.messages.txn import TxnOffsetCommitRequest
from ..aio.complaints import Complaints
from ..cluster.coordinator_lookup import CoordinatorLookup

logger = logging.getLogger("aiokc.transactions")

#: The feature (KIP-584) whose finalized level says which kind of transactions a cluster has (KIP-890).
_FEATURE = "transaction.version"


def _purpose(sent: ControlRequest) -> str:
    """Return what needs a version that a coordinator lacks."""
    if isinstance(sent, TxnOffsetCommit) and not sent.uses_v2:
        return f"to name member {sent.group.member_id!r} of group {sent.group.group_id!r} (KIP-447, Kafka 2.5)"
    return "a transaction that was begun as this one"


class ControlRequests:
    """The coordinators of one transactional id, and of the groups whose offsets it commits."""

    def __init__(
        self,
        config: ProducerConfig,
        pool: Pool,
        transactional_id: str,
        random: Random,
        request_metadata: Callable[[], None],
    ) -> None:
        self._config = config
        self._pool = pool
        self._transactional_id = transactional_id
        self._random = random
        self._request_metadata = request_metadata
        self._lookup = CoordinatorLookup(
            config, pool, transactional_id, random, request_metadata, key_type=KeyType.TRANSACTION
        )
        self._groups: dict[str, CoordinatorLookup] = {}
        self._last_error: KafkaError | None = None  # of the last control request
        self._session_ended = False  # the last control request found the end of its connection's SASL session
        self._complaints = Complaints(logger)

    @property
    def node_id(self) -> int | None:
        """The coordinator of the transactional id, as far as it is known at the moment."""
        return self._lookup.node_id

    @property
    def error(self) -> KafkaError | None:
        """Why the last control request has failed, or else the last lookup of the transactional id's coordinator.

        None if neither has.
        """
        return self._last_error or self._lookup.error

    def forget(self, group_id: str | None) -> None:
        """Have the coordinator of this group (None: of the transactional id) looked up anew."""
        lookup = self._lookup if group_id is None else self._groups.get(group_id)
        if lookup is not None:
            lookup.forget(None)

    async def transaction_version(self, timeout: float) -> int:
        """Ask the coordinator for the level of transaction.version, which may have changed since it was connected to.

        If it has, the next request connects anew. Raises what the lookup and the pool raise, and what the broker
        answers instead of its features.
        """
        name, version = SOFTWARE
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        node_id, response = await self._lookup.ask(ApiVersionsRequest, lambda version: request, timeout=timeout)
        if response.error_code:
            raise broker_error(response.error_code, f"ApiVersions of broker {node_id}")
        level = next((one.max_version_level for one in response.finalized_features if one.name == _FEATURE), 0)
        if level != self._lookup.features.get(_FEATURE, 0):
            self._pool.drop(node_id, Purpose.COORDINATOR)
        return level

    async def check_group(self, group_id: str, timeout: float) -> None:
        """Raise UnsupportedVersion where the group's coordinator can't tell a zombie's offsets (KIP-447, Kafka 2.5)."""
        lookup, least = self._of_group(group_id), OFFSETS_NAME_MEMBERS_FROM
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        node_id = await lookup.coordinator(timeout)
        try:
            connection = await self._pool.connection(node_id, Purpose.COORDINATOR, timeout=deadline - loop.time())
        except (ConnectionFailed, RequestTimedOut):
            lookup.lost(node_id)
            raise
        version = connection.usable_version(TxnOffsetCommitRequest)
        if version < least:
            raise UnsupportedVersion(
                f"broker {node_id} coordinates group {group_id!r}, and offers TxnOffsetCommit up to v{version};"
                f" exactly once needs v{least}, which Kafka 2.5 and newer have"
            )

    def connect_anew(self) -> None:
        """Have the next request ask the coordinator for its features, too: they must have changed."""
        if self._lookup.node_id is not None:
            self._pool.drop(self._lookup.node_id, Purpose.COORDINATOR)

    async def perform(self, sent: ControlRequest) -> Answered | NotAnswered:
        """Send ``sent`` once, and return what the coordinator answered, or that it did not."""
        event = await self._ask(sent)
        self._note(event)
        return event

    def _note(self, event: Answered | NotAnswered) -> None:
        """Keep why a request has failed, for who waits for it; report it now and then if it goes on."""
        text, what = "transactional id %r: %s: %s", type(event.sent).__name__
        again, self._session_ended = self._session_ended, False
        if isinstance(event, NotAnswered):
            self._session_ended = isinstance(event.error, SessionEnded)
            if self._session_ended and not again:  # no failure of the coordinator: it is asked once more
                self._last_error = None
                logger.info(text, self._transactional_id, what, event.error)
                return
            self._last_error = event.error
        else:
            self._last_error = broker_error(event.code, event.what) if event.code else None
        if self._last_error is None:
            return
        if isinstance(event, Answered) and event.code == ErrorCode.UNSUPPORTED_VERSION:
            self.connect_anew()
        is_normal = isinstance(event, Answered) and event.code == ErrorCode.CONCURRENT_TRANSACTIONS
        level = logging.INFO if is_normal else logging.WARNING
        self._complaints.warn((what, is_normal), text, self._transactional_id, what, self._last_error, at_first=level)

    async def _ask(self, sent: ControlRequest) -> Answered | NotAnswered:
        worded = wording(sent, self._transactional_id, self._config.transaction_timeout_ms)
        lookup = self._of_group(sent.group.group_id) if isinstance(sent, TxnOffsetCommit) else self._lookup

        built: Request[Any] | None = None  # just before it is written

        def build(version: int) -> Request[Any]:
            nonlocal built
            built = worded.request if version >= worded.versions.min else worded.older
            if built is not None:
                return built
            raise UnsupportedVersion(
                f"broker {lookup.node_id} offers {api_name(type(worded.request))} up to v{version}, and "
                f"{_purpose(sent)} needs v{worded.versions}"
            )

        try:
            _, response = await lookup.ask(
                type(worded.request),
                build,
                timeout=self._config.request_timeout_ms / 1e3,
                max_version=worded.versions.max,
                repeatable=False,  # the machine is to know of each request that may have been handled without an answer
            )
        except KafkaError as error:
            return NotAnswered(sent, error, written=built is not None)
        return answer(sent, response, lookup.features.get(_FEATURE, 0))

    def _of_group(self, group_id: str) -> CoordinatorLookup:
        lookup = self._groups.get(group_id)
        if lookup is None:
            lookup = self._groups[group_id] = CoordinatorLookup(
                self._config, self._pool, group_id, self._random, self._request_metadata
            )
        return lookup
