"""The offset JSON in Spark's checkpoint, its anchor (where a query began), and shares of maxOffsetsPerTrigger. Pure.

The JSON is that of Spark's own Kafka source, ``{"topic": {"0": next_offset, ...}}``, topics sorted by name and
partitions by number. Spark compares offsets as text, so equal offsets must be written equally.

Spark does not write down where a query starts. If the driver dies during batch 0, Spark asks for the initial offset
once more after the restart, and repeats batch 0 from *there* to the end that it had written. With
startingOffsets=latest the records between the two starts would be lost. So the end of batch 0 also has an anchor: under
``__aiokc_from__``, the offsets that the batch starts from. The end of a later batch has one for the partitions that are
new in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from aiokc import TopicPartition
from aiokc.errors import ConfigError

ANCHOR: Final = "__aiokc_from__"

_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")  # "00" would be another name of partition 0

_MOST_SHOWN: Final = 100  # characters of a value in an error

Offsets: TypeAlias = dict[TopicPartition, int]
OffsetJson: TypeAlias = dict[str, dict[str, Any]]


def quoted(value: object) -> str:
    """Return the value in quotes, for an error; of a long one the beginning: JSON may be about thousands of partitions.

    With text beyond that, the error of a query would be longer than its whole log.
    """
    text = repr(value[: _MOST_SHOWN + 1] if isinstance(value, str) else value)
    is_long = len(value if isinstance(value, str) else text) > _MOST_SHOWN
    return f"{text[:_MOST_SHOWN]}..." if is_long else text


def to_json(ends: Mapping[TopicPartition, int], anchor: Mapping[TopicPartition, int] | None = None) -> OffsetJson:
    """Return the JSON of ``ends``, with the starts in ``anchor`` if there are any."""
    written: OffsetJson = _nested(ends)
    if anchor:
        written[ANCHOR] = _nested(anchor)
    return written


def _nested(offsets: Mapping[TopicPartition, int]) -> OffsetJson:
    nested: OffsetJson = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def positions(written: Mapping[str, Any]) -> Offsets:
    """Return the offsets in a JSON offset of the checkpoint, without its anchor. Raises ConfigError."""
    return from_json("the checkpoint", {topic: parts for topic, parts in written.items() if topic != ANCHOR}, least=0)


def anchor(written: Mapping[str, Any]) -> Offsets:
    """Return the anchor of a JSON offset of the checkpoint; {} if it has none. Raises ConfigError."""
    return from_json("the checkpoint", written.get(ANCHOR, {}), least=0)


def from_json(origin: str, document: object, *, least: int) -> Offsets:
    """Return the offsets in ``{"topic": {"0": offset}}``; none may be smaller than ``least``. Raises ConfigError."""
    if not isinstance(document, Mapping):
        raise ConfigError(f'{origin}: {quoted(document)} is no JSON object of the form {{"topic": {{"0": 23}}}}')
    offsets: Offsets = {}
    for topic, parts in document.items():
        if not isinstance(parts, Mapping):
            raise ConfigError(f'{origin}: topic {quoted(topic)} must hold {{"partition": offset}}, not {quoted(parts)}')
        for partition, offset in parts.items():
            if not _NUMBER.fullmatch(partition):
                raise ConfigError(f"{origin}: {quoted(partition)} of topic {quoted(topic)} is no partition number")
            if isinstance(offset, bool) or not isinstance(offset, int) or not least <= offset < 1 << 63:
                raise ConfigError(
                    f"{origin}: {quoted(offset)} is no offset for {topic[:249]}-{partition} (least: {least})"
                )
            offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def admit(starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], max_offsets: int) -> Offsets:
    """Return the ends of a batch of about ``max_offsets`` offsets, shared in proportion to each partition's backlog.

    As in Spark's own source, every partition with a backlog gets at least one offset, so that none starves. Only for
    this may the batch exceed ``max_offsets``.
    """
    backlog = {tp: max(0, end - starts[tp]) for tp, end in ends.items()}
    total = sum(backlog.values())
    if total <= max_offsets:
        return dict(ends)
    return {
        tp: starts[tp] + max(1, max_offsets * backlog[tp] // total) if backlog[tp] else end for tp, end in ends.items()
    }
