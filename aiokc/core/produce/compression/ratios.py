"""How well each topic's records compress, as far as its batches have shown: so that a batch comes out in its size."""

from __future__ import annotations

from typing import Final

_BETTER: Final = 0.005  # at most so much, since one good batch says little
_WORSE: Final = 0.05  # at least so much, since a batch that is too large costs another request
_SAFETY: Final = 1.05
# Half of what aiokc's consumers decompress by default (max_decompressed_batch_bytes): a partition must not stop them
# because its records compress well and its leader was away for a while. Incompressible, so much still fits a broker's
# socket.request.max.bytes, so the broker answers MESSAGE_TOO_LARGE, and the batch is split.
_MOST_UNCOMPRESSED: Final = 64 << 20


class CompressionRatios:
    """The estimated ratio of compressed to uncompressed bytes of each topic (Java's CompressionRatioEstimator)."""

    def __init__(self) -> None:
        self._ratios: dict[str, float] = {}

    def capacity(self, topic: str, batch_size: int) -> int:
        """Return how many bytes of records, uncompressed, become a batch of ``batch_size``.

        They are at most 64 MiB, or ``batch_size`` if that is more.
        """
        ratio = self._ratios.get(topic)
        if ratio is None:
            return batch_size
        return min(int(batch_size / (ratio * _SAFETY)), max(batch_size, _MOST_UNCOMPRESSED))

    def closed(self, topic: str, uncompressed: int, compressed: int) -> None:
        """Learn from a batch that was compressed."""
        if not uncompressed:
            return
        seen, known = compressed / uncompressed, self._ratios.get(topic, 1.0)
        if seen > known:
            self._ratios[topic] = max(known + _WORSE, seen)
        else:
            self._ratios[topic] = max(known - _BETTER, seen)

    def refused_as_too_large(self, topic: str) -> None:
        """A broker has refused a batch for its size: believe in no compression for now."""
        self._ratios[topic] = max(1.0, self._ratios.get(topic, 1.0))

    def forget(self, topic: str) -> None:
        self._ratios.pop(topic, None)

    def __getitem__(self, topic: str) -> float:
        return self._ratios.get(topic, 1.0)
