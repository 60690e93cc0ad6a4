"""Who a producer is to brokers, its id and epoch (KIP-98), and the sequences that one partition counts under them."""

from __future__ import annotations

from typing import Final, NamedTuple

#: The last epoch of a producer id: after it a broker has to give another id.
LAST_EPOCH: Final = (1 << 15) - 1
#: Sequences wrap around: after 2**31 - 1 comes 0.
SEQUENCES: Final = 1 << 31
#: The base sequence of a batch that has none (yet).
NO_SEQUENCE: Final = -1


class ProducerIdentity(NamedTuple):
    """Who has written a batch, as brokers see it: sequences begin at 0 in each epoch of each id."""

    producer_id: int
    epoch: int

    def __str__(self) -> str:
        return f"producer id {self.producer_id}, epoch {self.epoch}"


#: What the batches of a producer without idempotence carry.
NOBODY: Final = ProducerIdentity(-1, -1)


def after(sequence: int, count: int) -> int:
    """Return the sequence that comes ``count`` records after ``sequence``."""
    return (sequence + count) % SEQUENCES


class Sequences:
    """The numbering of one partition's records. It begins at 0 under each new identity.

    ``expected`` is the sequence behind the last one that was acknowledged: what the broker takes next, if no batch is
    in flight.
    """

    __slots__ = ("expected", "identity", "next")

    def __init__(self) -> None:
        self.identity: ProducerIdentity = NOBODY
        self.next = 0
        self.expected = 0

    def begin(self, identity: ProducerIdentity) -> None:
        """Number from 0 on under ``identity``."""
        self.identity, self.next, self.expected = identity, 0, 0

    def take(self, count: int) -> int:
        """Return the sequence for the first of the next ``count`` records."""
        taken = self.next
        self.next = (taken + count) % SEQUENCES
        return taken

    def acknowledged(self, sequence: int, count: int) -> None:
        """The broker has stored ``count`` records from ``sequence`` on, and so all before them.

        A batch may be acknowledged behind later ones: an error was answered at first, such as REQUEST_TIMED_OUT, though
        the batch was stored.
        """
        behind = after(sequence, count)
        if sequence != NO_SEQUENCE and not self.has_passed(behind):
            self.expected = behind

    def has_passed(self, sequence: int) -> bool:
        """Whether ``sequence`` is an earlier one than the broker expects: a later one is acknowledged."""
        return (sequence - self.expected) % SEQUENCES >= SEQUENCES // 2
