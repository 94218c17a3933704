"""Cleaning: whatever a payload holds, what comes out is fit to be spoken, shown in a terminal and put on a braille line."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from acs_aaep_bridge.core.clean import LOOKED_AT, clean, clean_lines, label
from acs_aaep_bridge.core.cut import ELLIPSIS, cut, cut_to

FORBIDDEN = {
    *map(chr, range(0x20)),
    *map(chr, range(0x7F, 0xA0)),
    *"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200b\u2060\ufeff\u2028\u2029",
    *map(chr, range(0xE0000, 0xE0080)),
}
NASTY = st.text(
    st.one_of(
        st.characters(),
        st.sampled_from(sorted(FORBIDDEN)),
        st.sampled_from("\u200c\u200d\u212a\u0301\u1100\u1161\U0001f468\U0001f1e9\U0001f1ea []31m;\\\"'"),
    ),
    max_size=80,
)


def joiners_are_in_place(text: str) -> bool:
    """U+200C and U+200D only one at a time, and only between non-ASCII characters."""
    for index, character in enumerate(text):
        if character in "\u200c\u200d":
            around = text[index - 1 : index] + text[index + 1 : index + 2]
            if len(around) < 2 or around.isascii() or any(c.isascii() or c in "\u200c\u200d" for c in around):
                return False
    return True


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m alert", "red alert"),
        ("\x1b]0;window title\x07text", "text"),
        ("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("a\x1b[\x1b[31m32mb", "a32mb"),
        ("one\r\ntwo\tthree\x0bfour\u2028five\x85six", "one two three four five six"),
        ("null\x00 bell\x07 delete\x7f c1\x90", "null bell delete c1"),
        ("evil\u202etxt.exe\u2066x\u2069", "eviltxt.exex"),
        ("zero\u200bwidth\u2060and\ufeffBOM", "zerowidthandBOM"),
        ("tag\U000e0041\U000e007fged", "tagged"),
        ("a\u200db", "ab"),
        ("\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645", "\u0646\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645"),
        ("\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
        ("\u0646\u200c\u200c\u062e", "\u0646\u200c\u062e"),
        ("e\u0301", "\u00e9"),
        ("  much \u00a0 \u3000 space  ", "much space"),
        ("", ""),
        ("\u200b\x00", ""),
    ],
)
def test_each_step_of_cleaning(raw: str, expected: str) -> None:
    assert clean(raw) == expected


@given(NASTY)
def test_nothing_invisible_or_steering_survives(raw: str) -> None:
    text = clean(raw)
    assert not FORBIDDEN & set(text)
    assert joiners_are_in_place(text)
    assert text == unicodedata.normalize("NFC", text) == text.strip()
    assert not regex.search(r"\s\s", text)


@given(NASTY)
def test_lines_keep_only_newlines_and_tabs(raw: str) -> None:
    text = clean_lines(raw)
    assert not (FORBIDDEN - {"\n", "\t"}) & set(text)
    assert joiners_are_in_place(text)


def test_lines_keep_their_layout() -> None:
    assert clean_lines("def f():\r\n\treturn  1\u2028done\n") == "def f():\n\treturn 1\ndone"


@given(NASTY)
def test_cleaning_twice_changes_nothing_more_when_nothing_is_redacted(raw: str) -> None:
    once = clean(raw, redacting=False)
    assert clean(once, redacting=False) == once


@given(NASTY)
def test_an_identifier_is_kept_as_it_is_unless_it_would_steer_a_terminal(raw: str) -> None:
    text = label(raw)
    assert not FORBIDDEN & set(text)
    assert joiners_are_in_place(text)
    if raw.isprintable():
        assert text == raw


def test_only_the_first_64_ki_characters_are_looked_at() -> None:
    assert len(clean("x" * (LOOKED_AT + 5))) == LOOKED_AT
    assert clean("x" * (LOOKED_AT + 5)).endswith(ELLIPSIS)
    assert clean(" " * LOOKED_AT + "late") == ELLIPSIS


@pytest.mark.parametrize(
    "unit", ["e\u0301", "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\u1100\u1161\u11a8", "\r\n", "ab "]
)
@pytest.mark.parametrize("limit", range(1, 30))
def test_a_cut_never_falls_inside_a_grapheme_cluster(unit: str, limit: int) -> None:
    text = unit * 20
    short = cut(text, limit)
    assert len(short) <= limit
    if short != text:
        assert short.endswith(ELLIPSIS)
        kept = short.removesuffix(ELLIPSIS)
        clusters = regex.findall(r"\X", text)
        assert kept in {"".join(clusters[:n]).rstrip() for n in range(len(clusters))}


@given(st.text(max_size=300), st.integers(1, 310))
def test_a_cut_keeps_to_its_limit_and_to_the_text(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert len(short) <= limit
    assert short == text or text.startswith(short.removesuffix(ELLIPSIS))


@given(st.text(min_size=1, max_size=300), st.integers(3, 400))
@example("\U00010000", 3)
def test_a_cut_to_bytes_fits_or_is_the_ellipsis_alone(text: str, budget: int) -> None:
    short = cut_to(text, budget, lambda part: len(part.encode()))
    assert len(short.encode()) <= budget


@pytest.mark.parametrize(
    "unit",
    [
        "\u0301",
        "\u200d\U0001f469",
        "\x1b]",
        "\x1b[",
        "token",
        "token=",
        "authorization ",
        "Bearer ",
        "://",
        "sk-",
        '"',
        "\\",
        "-----BEGIN A-----",
        "eyJ.",
        "a",
    ],
)
@pytest.mark.timeout(20)
def test_no_text_makes_cleaning_blow_up(unit: str) -> None:
    """Quadratic work on 64 Ki characters would take minutes."""
    clean(unit * (LOOKED_AT // len(unit)))
