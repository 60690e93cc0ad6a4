"""ProducerIds: the session of a producer without transactions, and the driver that asks for its producer id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

from ...config import ProducerConfig
from ...core.backoff import retry_backoff
from ...core.produce.failure import PERMISSIONS, Cause, Failure, Harm
from ...core.produce.identity import ProducerIdentity
from ...core.produce.session import PlainSession
from ...error_codes import error_name
from ...errors import AuthenticationFailed, KafkaError, UnsupportedVersion, is_retriable
from ...net.pool import Pool
from ...wire import prepare
from ...wire.messages.produce import InitProducerIdRequest
from ..aio.complaints import Complaints
from ..aio.signal import Signal

logger = logging.getLogger("aiokc.produce")
prepare(InitProducerIdRequest, version=5)  # Kafka 4.3 speaks no later one


class ProducerIds(PlainSession):
    """Asks for a producer id (InitProducerId) at the start, and after the last epoch of one; any broker can give it."""

    def __init__(self, config: ProducerConfig, pool: Pool, random: Random, *, changed: Callable[[], None]) -> None:
        """``changed`` is called when there is an identity, or when there will never be one."""
        super().__init__(idempotent=config.enable_idempotence, renumbers_unclear=config.enable_renumbering)
        self._config, self._pool, self._random = config, pool, random
        self._changed = changed
        self._wanted = Signal()
        self._complaints = Complaints(logger)

    def bump(self, lost: ProducerIdentity) -> ProducerIdentity | None:
        identity = super().bump(lost)
        if identity is None:
            self._wanted.notify()
        return identity

    async def run(self) -> None:
        """Ask for an id whenever one is wanted, until cancelled."""
        while True:
            if self.wants_id:
                await self._ask()
            else:
                await self._wanted.wait()

    async def _ask(self) -> None:
        """Ask until a broker gives an id, or refuses it for good. A login that is refused may be accepted later."""
        request = InitProducerIdRequest(
            transactional_id=None, transaction_timeout_ms=self._config.transaction_timeout_ms, producer_epoch=-1
        )
        timeout = self._config.request_timeout_ms / 1e3
        backoff = retry_backoff(self._config, self._random)
        again = False
        while self.wants_id:
            pause = backoff.next()
            try:
                response = await self._pool.any_broker(
                    InitProducerIdRequest, lambda version: request, timeout=timeout, asks_others=True, again=again
                )
            except UnsupportedVersion as error:
                lacking = UnsupportedVersion(
                    f"no producer id: {error}; set enable_idempotence=False to send without one"
                )
                self._refused(Failure(Cause.BROKEN, harm=Harm.PRODUCER, error=lacking))
                return
            except KafkaError as error:
                is_login = isinstance(error, AuthenticationFailed)
                if not (error.retriable or is_login):
                    self._refused(Failure(Cause.BROKEN, harm=Harm.PRODUCER, error=error))
                    return
                if is_login:
                    pause = max(pause, self._pool.logins.pause(asyncio.get_running_loop().time()))
                self.trouble = f"no producer id yet: {error}"
                self._complaints.warn("id", "%s; trying again", self.trouble)
            else:
                if response.error_code == 0:
                    self._complaints.forget("id")
                    self.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
                    return self._changed()
                text = f"asking for a producer id: {error_name(response.error_code)}"
                if not is_retriable(response.error_code):
                    text = PERMISSIONS.get(response.error_code, text)
                    return self._refused(Failure(Cause.REFUSED, response.error_code, text, harm=Harm.PRODUCER))
                self.trouble, again = text, True
                self._complaints.warn("id", "%s; trying again", text)
            await asyncio.sleep(pause)

    def _refused(self, failure: Failure) -> None:
        self.doom = failure
        self._changed()
