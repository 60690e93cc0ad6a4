"""What logical types mean, and JSON of what was decoded.

A value that a logical type does not allow, or Python has no object for (the year 10000), is shown as what it is stored
as: its record is good. fastavro would refuse the record. So the schema is told to it with other names for these types.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

_OURS: Final = "aiokc-"
_MOST_DIGITS = 1_000  # of a decimal that is written out, and bytes of one that is read: more take a long time


def without_traps(schema: Any) -> Any:
    """Return a schema as JSON has it without what fastavro may refuse, and what no reader of the same schema needs.

    Those are defaults, which many registries let pass whatever they are, and logical types that are not valid: the
    specification says that those are to be ignored.
    """
    if isinstance(schema, list):
        return [without_traps(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value for key, value in schema.items() if key not in ("default", "logicalType")}
    for key in ("type", "items", "values"):
        if isinstance(found.get(key), dict | list):
            found[key] = without_traps(found[key])
    if isinstance(found.get("fields"), list):
        found["fields"] = [without_traps(field) for field in found["fields"]]
    if (name := _logical_type(schema)) is not None:
        found["logicalType"] = name
    return found


def _logical_type(schema: dict[str, Any]) -> str | None:
    """Return the name that fastavro is told for a schema's logical type; None for one that is to be ignored."""
    kind, logical = schema.get("type"), schema.get("logicalType")
    if not isinstance(kind, str) or not isinstance(logical, str):
        return None
    readers = _readers()
    if f"{kind}-{_OURS}{logical}" not in readers or (logical == "decimal" and not _is_decimal(schema)):
        return None
    return f"{_OURS}{logical}"


def _is_decimal(schema: dict[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    return type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0


def _readers() -> dict[str, Callable[..., Any]]:
    """Return what fastavro reads logical types with; it has ours, too, from the first call on."""
    from fastavro.read import LOGICAL_READERS

    readers: dict[str, Callable[..., Any]] = LOGICAL_READERS
    for name, read in list(readers.items()):
        kind, _, logical = name.partition("-")
        if not logical.startswith(_OURS):
            readers.setdefault(f"{kind}-{_OURS}{logical}", _decimal if logical == "decimal" else _or_as_stored(read))
    return readers


def _or_as_stored(read: Callable[..., Any]) -> Callable[..., Any]:
    def value(data: Any, writer_schema: Any = None, reader_schema: Any = None) -> Any:
        try:
            return read(data, writer_schema, reader_schema)
        except Exception:  # ValueError, OverflowError, or what another version raises
            return data

    return value


def _decimal(data: bytes, writer_schema: Any = None, reader_schema: Any = None) -> Any:
    """Return all digits that are stored: fastavro's own rounds to the precision that the schema says."""
    if len(data) > _MOST_DIGITS:
        return data
    unscaled = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((unscaled.sign, unscaled.digits, -writer_schema.get("scale", 0)))


def plain(value: Any) -> Any:
    """Return a decoded value as JSON can hold it: bytes in hex, times and decimals as text."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Decimal):
        return f"{value:f}" if abs(int(value.as_tuple().exponent)) <= _MOST_DIGITS else str(value)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
