"""Keys go where the Java client would send them."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as reference
from hypothesis import given
from hypothesis import strategies as st

from acs_aaep_bridge.kafka.partitioner import choose, murmur2


@given(st.binary(max_size=80))
def test_agrees_with_the_reference(key: bytes) -> None:
    """For any key it is the number that aiokafka's port of the Java code gives."""
    assert murmur2(key) == reference(key) & 0x7FFFFFFF


@pytest.mark.parametrize(
    ("key", "number"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"abc", 479470107)],
)
def test_agrees_with_kafkas_own_vectors(key: bytes, number: int) -> None:
    """From the tests of Apache Kafka's `Utils.murmur2`, which are signed 32-bit numbers."""
    assert murmur2(key) == number & 0x7FFFFFFF


def test_without_a_key_equal_input_goes_equal_ways() -> None:
    """A record without a key follows its input partition, so that a repetition lands where the first one did."""
    assert [choose(None, partition, 4) for partition in (0, 3, 6)] == [0, 3, 2]
