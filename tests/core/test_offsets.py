"""The low-water mark never passes a batch that is not finished."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acs_aaep_bridge.core.offsets import LowWaterMark


def test_starts_where_the_partition_was_taken() -> None:
    """Before anything is finished, what may be committed is the offset the partition was taken at."""
    assert LowWaterMark(17).value == 17


def test_waits_for_the_oldest_batch() -> None:
    """A later batch that finishes first moves nothing until the one before it is finished too."""
    mark = LowWaterMark(0)
    mark.accept(10)
    mark.accept(25)
    assert mark.finish(25) is False
    assert mark.value == 0
    assert mark.finish(10) is True
    assert (mark.value, mark.pending) == (25, 0)


@pytest.mark.parametrize("bad", [5, 10])
def test_refuses_to_accept_out_of_log_order(bad: int) -> None:
    """A batch at or below what was accepted is a bug of the caller, never silently taken."""
    mark = LowWaterMark(0)
    mark.accept(10)
    with pytest.raises(ValueError, match="accepted after 10"):
        mark.accept(bad)


def test_refuses_to_finish_twice() -> None:
    """Finishing a batch twice, or one that was never accepted, is a bug of the caller."""
    mark = LowWaterMark(0)
    mark.accept(3)
    mark.accept(9)
    mark.finish(9)
    with pytest.raises(ValueError, match="no open batch"):
        mark.finish(9)
    with pytest.raises(ValueError, match="no open batch"):
        mark.finish(4)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=40), st.data())
def test_never_passes_a_gap(steps: list[int], data: st.DataObject) -> None:
    """In whatever order batches finish, the mark is the end of the longest finished run from the front, at every moment."""
    ends = [sum(steps[: n + 1]) for n in range(len(steps))]
    mark = LowWaterMark(0)
    for end in ends:
        mark.accept(end)
    finished: set[int] = set()
    for end in data.draw(st.permutations(ends)):
        mark.finish(end)
        finished.add(end)
        unfinished = [each for each in ends if each not in finished]
        below = [each for each in ends if not unfinished or each < unfinished[0]]
        assert mark.value == (below[-1] if below else 0)
    assert mark.value == ends[-1]
