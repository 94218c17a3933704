"""The lenient reader agrees with aiokafka on sound batches, and says exactly what is wrong with the others."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from acs_aaep_bridge.core.model import Record
from acs_aaep_bridge.kafka.lenient import UNDECODABLE, CorruptBatch, LenientBatch, read

CODECS = pytest.mark.parametrize("codec", range(5), ids=["none", "gzip", "snappy", "lz4", "zstd"])
RECORDS: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]] = [
    (1_700_000_000_000, b"k", b"v" * 300, []),
    (1_700_000_000_500, None, b"", [("one", b"1"), ("one", None), ("zwei", "ü".encode())]),
    (1_699_999_999_000, b"", None, [("", b"")]),
]


def batch(records: list[Any], codec: int = 0, base: int = 0, transactional: int = 0, producer: int = -1) -> bytes:
    """A batch as a broker would keep it."""
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer, 0, 0, 1 << 20)
    for number, (timestamp, key, value, headers) in enumerate(records):
        builder.append(number, timestamp, key=key, value=value, headers=headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    return bytes(data)


def spoiled(data: bytes, old: bytes, new: bytes, checksum: bool = True) -> bytes:
    """With other bytes in it, and by default a checksum that fits them."""
    changed = bytearray(data.replace(old, new))
    if checksum:
        struct.pack_into(">I", changed, 17, calc_crc32c(bytes(changed[21:])))
    return bytes(changed)


def everything(data: bytes, start: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[LenientBatch]:
    return list(read(data, "t", 3, aborted or [], start))


@CODECS
def test_reads_what_aiokafka_reads(codec: int) -> None:
    """Keys, values, headers, offsets and timestamps of a sound batch come out the same, however compressed."""
    data = batch(RECORDS * 5, codec, base=40)
    theirs = [
        Record("t", 3, one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in DefaultRecordBatch(data)
    ]
    ((records, faults, after),) = everything(data)
    assert list(records) == theirs
    assert faults == {}
    assert after == 55


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 40),
            st.none() | st.binary(max_size=20),
            st.none() | st.binary(max_size=200),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        ),
        min_size=1,
        max_size=10,
    ),
    st.integers(0, 4),
)
def test_agrees_with_aiokafka_on_any_batch(records: list[Any], codec: int) -> None:
    """Whatever was written is read as aiokafka reads it."""
    data = batch(records, codec)
    theirs = [(one.offset, one.timestamp, one.key, one.value, tuple(one.headers)) for one in DefaultRecordBatch(data)]
    ((found, _, _),) = everything(data)
    assert [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in found] == theirs


def test_one_bad_header_name_costs_one_record_its_headers() -> None:
    """The record is there, without headers and with a fault; its neighbours are whole."""
    plain = [(5, b"k", b"v%d" % number, [("name-a" if number == 1 else "fine", b"x")]) for number in range(3)]
    ((records, faults, _),) = everything(spoiled(batch(plain), b"name-a", b"\xff\xfename"))
    assert [record.value for record in records] == [b"v0", b"v1", b"v2"]
    assert [record.headers for record in records] == [(("fine", b"x"),), (), (("fine", b"x"),)]
    assert {offset: fault.code for offset, fault in faults.items()} == {1: UNDECODABLE}


def test_begins_at_the_offset_asked_for() -> None:
    """A fetch returns whole batches: what lies before the offset was read already."""
    ((records, _, after),) = everything(batch(RECORDS, base=10), start=12)
    assert [record.offset for record in records] == [12]
    assert after == 13


def test_leaves_out_aborted_transactions_and_markers() -> None:
    """What a producer aborted is not shown, from the first offset of the transaction to its marker."""
    control = bytearray(batch([(1, b"\0\0\0\0", b"", [])], base=4, transactional=1, producer=7))
    struct.pack_into(">h", control, 21, struct.unpack_from(">h", control, 21)[0] | 0x20)
    struct.pack_into(">I", control, 17, calc_crc32c(bytes(control[21:])))
    data = (
        batch(RECORDS[:2], base=0, transactional=1, producer=7)
        + batch(RECORDS[:2], base=2, transactional=1, producer=8)
        + bytes(control)
        + batch(RECORDS[:1], base=5, transactional=1, producer=7)
    )
    assert [[record.offset for record in one.records] for one in everything(data, aborted=[(7, 0)])] == [[], [2, 3], [], [5]]
    assert [one.next_offset for one in everything(data)] == [2, 4, 5, 6]


def test_a_cut_off_batch_is_left_for_the_next_fetch() -> None:
    """The last batch of a fetch may be incomplete."""
    data = batch(RECORDS) + batch(RECORDS, base=3)
    assert len(everything(data[:-5])) == 1


def test_a_wrong_checksum_is_said() -> None:
    """Bytes that changed on the way are never taken for records."""
    with pytest.raises(CorruptBatch, match="checksum of the batch at offset 40"):
        everything(spoiled(batch(RECORDS, base=40), b"vvvv", b"vvvw", checksum=False))


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_another_format_is_said(magic: int) -> None:
    """Only format 2 is known here."""
    data = bytearray(batch(RECORDS))
    data[16] = magic
    with pytest.raises(CorruptBatch, match=f"format {magic}"):
        everything(bytes(data))


def test_bytes_that_do_not_unpack_are_said() -> None:
    """A compressed body that is none, with a right checksum, is corrupt, whatever the decompressor raises."""
    data = bytearray(batch(RECORDS * 20, codec=1))
    data[61:75] = bytes(14)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    with pytest.raises(CorruptBatch, match="cannot be decoded"):
        everything(bytes(data))


@given(st.binary(max_size=200), st.integers(0, 150))
def test_any_bytes_give_batches_or_corrupt(noise: bytes, at: int) -> None:
    """Noise over a batch never gives another error."""
    data = bytearray(batch(RECORDS))
    data[61 + at : 61 + at + len(noise)] = noise
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">I", data, 17, calc_crc32c(bytes(data[21:])))
    with suppress(CorruptBatch):
        everything(bytes(data))
