"""The brake stops a partition whose records are rejected in masses, and nothing less."""

from __future__ import annotations

from acs_aaep_bridge.core.brake import WINDOW, Brake


def _noted(brake: Brake, codes: list[str | None], start: int = 0) -> str | None:
    for offset, code in enumerate(codes, start):
        brake.note(offset, code)
    return brake.tripped


def test_trips_past_the_allowed_number_in_a_row() -> None:
    """`max_consecutive` rejected records in a row are allowed; one more trips."""
    brake = Brake(500, 0)
    assert _noted(brake, ["payload_invalid"] * 500) is None
    assert _noted(brake, ["payload_invalid"] * 3, 500) == "payload_invalid"
    assert brake.tripped_at == 500


def test_one_accepted_record_starts_the_row_anew() -> None:
    """A record that was accepted breaks the row."""
    assert _noted(Brake(3, 0), ["too_deep"] * 3 + [None] + ["too_deep"] * 3) is None


def test_trips_past_the_ratio_once_the_window_is_full() -> None:
    """More than the ratio of the last 2,000 trips; the first record alone does not, nor exactly the ratio."""
    half: list[str | None] = ["not_utf8", None] * (WINDOW // 2)
    assert _noted(Brake(0, 0.5), half[:-1]) is None
    exact = Brake(0, 0.5)
    assert _noted(exact, half) is None
    # The next rejected record pushes a rejected one out: still exactly half. The one after it pushes out an accepted one.
    assert _noted(exact, ["not_utf8"], WINDOW) is None
    assert _noted(exact, ["not_utf8"], WINDOW + 1) == "not_utf8"


def test_old_records_leave_the_window() -> None:
    """What lies more than 2,000 records back counts no more."""
    brake = Brake(0, 0.5)
    _noted(brake, ["not_utf8"] * (WINDOW // 2))
    _noted(brake, [None] * WINDOW, WINDOW // 2)
    assert _noted(brake, ["not_utf8"] * (WINDOW // 2), 2 * WINDOW) is None


def test_zero_turns_a_rule_off() -> None:
    """With both rules off nothing trips."""
    assert _noted(Brake(0, 0), ["not_utf8"] * (3 * WINDOW)) is None


def test_reading_again_counts_once() -> None:
    """Records that are read again after a failure do not count twice."""
    brake = Brake(5, 0)
    _noted(brake, ["not_utf8"] * 5)
    assert _noted(brake, ["not_utf8"] * 5) is None


def test_what_the_broker_refuses_later_counts_as_rejected() -> None:
    """Accepted first and refused by the output topic, out of order: the row counts, wherever in the window it lies."""
    brake = Brake(2, 0)
    _noted(brake, [None] * 6)
    for offset in (2, 4):
        brake.note(offset, "output_too_large")
    assert _noted(brake, []) is None
    brake.note(3, "output_too_large")
    assert (brake.tripped, brake.tripped_at) == ("output_too_large", 3)


def test_a_row_goes_on_from_what_was_refused_later() -> None:
    """The last record turns out to be rejected, and the next ones are rejected at once: one row."""
    brake = Brake(2, 0)
    _noted(brake, [None, None])
    brake.note(1, "output_too_large")
    assert _noted(brake, ["not_utf8"], 2) is None
    assert _noted(brake, ["not_utf8"], 3) == "not_utf8"


def test_names_the_most_frequent_code() -> None:
    """What tripped it is named by the code that prevails."""
    codes: list[str | None] = ["not_utf8", "payload_invalid", "payload_invalid"]
    assert _noted(Brake(2, 0), codes) == "payload_invalid"


def test_stays_tripped() -> None:
    """Good records do not release it: an operator does, by a restart."""
    brake = Brake(1, 0)
    _noted(brake, ["not_utf8"] * 2)
    assert _noted(brake, [None] * 100, 2) == "not_utf8"
