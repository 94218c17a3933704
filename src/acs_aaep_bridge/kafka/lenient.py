"""A reader of Kafka record batches (message format v2) that survives a bad record, and says which one it is.

aiokafka decodes header names as UTF-8 and fails for the whole batch when one is not: every record of the batch is then out
of reach. Here a record stands by itself, framed by its own length.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from aiokafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
from aiokafka.record.util import calc_crc32c

from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.kafka.ports import Fault

UNDECODABLE = "undecodable_headers"
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_ENDS = 12
_CRC_COVERS = 21
_CODEC = 0x07
_TRANSACTIONAL = 0x10
_CONTROL = 0x20
_LOG_APPEND_TIME = 0x08
_DECODERS = {1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}


class CorruptBatch(Exception):
    """The bytes of a batch are not what its producer sent, or are no batch of a known format."""


class LenientBatch(NamedTuple):
    """Records in log order, and where the log goes on. `faults` by offset; such a record has no headers."""

    records: tuple[Record, ...]
    faults: dict[int, Fault]
    next_offset: int


class RawBatch(NamedTuple):
    """One batch as it lies in the log: its header's fields, all of its bytes, and whether a reader of committed data sees it."""

    header: tuple[int, ...]
    data: bytes
    is_shown: bool

    @property
    def next_offset(self) -> int:
        return self.header[0] + self.header[6] + 1


def batches(data: bytes, aborted: list[tuple[int, int]]) -> Iterator[RawBatch]:
    """The complete batches in `data`. Those of control records and aborted transactions are not shown.

    `aborted` are (producer id, first offset). Raises CorruptBatch when it comes to one.
    """
    position = 0
    waiting = sorted(aborted, key=lambda one: one[1])
    aborting: set[int] = set()
    while len(data) - position >= _HEADER.size:
        header = _HEADER.unpack_from(data, position)
        base, length, magic, crc, attributes, producer = header[0], header[1], header[3], header[4], header[5], header[9]
        end = position + _LENGTH_ENDS + length
        if end > len(data):
            return
        if magic != 2 or length < _HEADER.size - _LENGTH_ENDS:
            raise CorruptBatch(f"the batch at offset {base} is of the unknown format {magic}")
        if calc_crc32c(data[position + _CRC_COVERS : end]) != crc:
            raise CorruptBatch(f"the checksum of the batch at offset {base} is wrong")
        while waiting and waiting[0][1] <= base:
            aborting.add(waiting.pop(0)[0])
        if attributes & _CONTROL:
            aborting.discard(producer)
        is_shown = not attributes & _CONTROL and not (attributes & _TRANSACTIONAL and producer in aborting)
        yield RawBatch(header, data[position:end], is_shown)
        position = end


def read(data: bytes, topic: str, partition: int, aborted: list[tuple[int, int]], start: int) -> Iterator[LenientBatch]:
    """The complete batches in `data`, from offset `start` on, without control records and aborted transactions.

    `aborted` are (producer id, first offset). Raises CorruptBatch when it comes to one.
    """
    for batch in batches(data, aborted):
        records: list[Record] = []
        faults: dict[int, Fault] = {}
        if batch.is_shown:
            for record, fault in _records(batch.data[_HEADER.size :], batch.header, topic, partition):
                if record.offset >= start:
                    records.append(record)
                    if fault is not None:
                        faults[record.offset] = fault
        yield LenientBatch(tuple(records), faults, batch.next_offset)


def _records(body: bytes, header: tuple[int, ...], topic: str, partition: int) -> Iterator[tuple[Record, Fault | None]]:
    attributes, first_timestamp, max_timestamp, count = header[5], header[7], header[8], header[12]
    if attributes & _CODEC and attributes & _CODEC not in _DECODERS:
        raise CorruptBatch(f"the batch at offset {header[0]} is compressed in an unknown way")
    try:
        if attributes & _CODEC:
            body = bytes(_DECODERS[attributes & _CODEC](body))
        position = 0
        for _ in range(count):
            length, position = _varint(body, position)
            fields, fault = _fields(body[position : position + length])
            timestamp = max_timestamp if attributes & _LOG_APPEND_TIME else first_timestamp + fields.timestamp_delta
            offset = header[0] + fields.offset_delta
            yield Record(topic, partition, offset, timestamp, fields.key, fields.value, fields.headers), fault
            position += length
    except Exception as error:  # a decompressor's error, an index out of range: whatever it is, the batch is not readable
        raise CorruptBatch(f"the batch at offset {header[0]} cannot be decoded ({type(error).__name__})") from None


class _Fields(NamedTuple):
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def _fields(record: bytes) -> tuple[_Fields, Fault | None]:
    timestamp_delta, position = _varint(record, 1)
    offset_delta, position = _varint(record, position)
    key, position = _bytes(record, position)
    value, position = _bytes(record, position)
    count, position = _varint(record, position)
    headers: list[tuple[str, bytes | None]] = []
    fault = None
    for _ in range(count):
        name, position = _bytes(record, position)
        content, position = _bytes(record, position)
        try:
            headers.append(((name or b"").decode(), content))
        except UnicodeDecodeError:
            fault = Fault(UNDECODABLE, "a header's name is not UTF-8; all headers were left out")
    return _Fields(timestamp_delta, offset_delta, key, value, () if fault else tuple(headers)), fault


def _bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    length, position = _varint(data, position)
    if length < 0:
        return None, position
    if position + length > len(data):
        raise IndexError("a field reaches past its record")
    return data[position : position + length], position + length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag-encoded number and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
