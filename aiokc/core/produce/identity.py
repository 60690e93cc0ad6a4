"""ProducerIdentity: the producer id and epoch that idempotent batches carry (KIP-98)."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The last epoch of a producer id: after it a broker has to give another id.
LAST_EPOCH: Final = (1 << 15) - 1


class ProducerIdentity(NamedTuple):
    """Who has written a batch, as brokers see it: sequences begin at 0 in each epoch of each id."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer id {self.producer_id}, epoch {self.epoch}"


#: What the batches of a producer without idempotence carry.
NOBODY: Final = ProducerIdentity(-1, -1)
