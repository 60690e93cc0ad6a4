from typing import final

from ..types import RawRecord
from .batch import BatchHeader

@final
class RecordReader:
    def __new__(cls, header: BatchHeader, payload: bytes, *, topic: str, partition: int) -> RecordReader: ...
    @property
    def remaining(self) -> int: ...
    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]: ...
