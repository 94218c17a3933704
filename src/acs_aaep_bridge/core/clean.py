"""Cleaning of every string that comes from a payload before it is shown or spoken (docs/mapping.md, 3).

The order matters: escape sequences, line breaks, controls and invisible characters, Unicode NFC, white space,
redaction, trim. A screen reader, a terminal or a braille line may be handed the result as it is.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

import regex

from acs_aaep_bridge.core.cut import cut
from acs_aaep_bridge.core.redact import redact

LOOKED_AT = 64 << 10
MAX_ID = 256

_ESCAPES = regex.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # control sequences: colours, cursor
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\r\n]*(?:\x07|\x1b\\|\x9c)?"  # strings: titles, links
    r"|\x1b[ -/]*[0-~]"
)
_BREAKS = regex.compile(r"\r\n|[\t\n\x0b\x0c\r\x85\u2028\u2029]")
_LINE_BREAKS = regex.compile(r"\r\n|[\x0b\x0c\r\x85\u2028\u2029]")
_UNSEEN = regex.compile(
    r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u200b\u2060\ufeff\U000e0000-\U000e007f]"
)
_UNSEEN_IN_LINES = regex.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u200b\u2060\ufeff\U000e0000-\U000e007f]"
)
_JOINER = regex.compile(r"[\u200c\u200d]")
_JOINERS = regex.compile(r"([\u200c\u200d])[\u200c\u200d]+")
_STRAY_JOINER = regex.compile(r"(?<![^\x00-\x7f\u200c\u200d])[\u200c\u200d]|[\u200c\u200d](?![^\x00-\x7f\u200c\u200d])")
_SPACES = regex.compile(r"[^\S\n\t]+")


def clean(text: str, redacting: bool = True) -> str:
    """One line of plain text: no control, bidi or escape sequence, no secret (unless `redacting` is off), trimmed.

    Only the first 64 Ki characters are looked at; the rest is cut.
    """
    if len(text) > LOOKED_AT:
        text = cut(text, LOOKED_AT)
    if not (text.isascii() and text.isprintable()):
        text = " ".join(_visible(text, _BREAKS, " ", _UNSEEN).split())
    elif "  " in text or text[:1] == " " or text[-1:] == " ":
        text = " ".join(text.split())
    return redact(text).strip() if redacting else text


def clean_lines(text: str, redacting: bool = True) -> str:
    """`clean` for output that is read as it was laid out: newlines and tabs stay, other line breaks become newlines."""
    if len(text) > LOOKED_AT:
        text = cut(text, LOOKED_AT)
    if not (text.isascii() and text.isprintable()):
        text = _visible(text, _LINE_BREAKS, "\n", _UNSEEN_IN_LINES)
    text = _SPACES.sub(" ", text)
    return redact(text).strip() if redacting else text.strip()


def label(text: str, limit: int = MAX_ID) -> str:
    """An identifier as it is, save for what must never reach a person (controls, bidi), cut at `limit` characters.

    Not redacted and not normalized: it has to match the same identifier elsewhere.
    """
    if not text.isprintable():
        text = _UNSEEN.sub("", _BREAKS.sub(" ", _ESCAPES.sub("", text[: 4 * limit])))
        text = _without_strays(text)
    return text if len(text) <= limit else cut(text, limit)


def cleaner(redacting: bool) -> Callable[[str], str]:
    """`clean` with the choice made once."""
    return lambda text: clean(text, redacting)


def _visible(text: str, breaks: regex.Pattern[str], gap: str, unseen: regex.Pattern[str]) -> str:
    text = _ESCAPES.sub("", text)
    text = breaks.sub(gap, text)
    text = unseen.sub("", text)
    if not _JOINER.search(text):
        return unicodedata.normalize("NFC", text)
    return _joined(text)


def _joined(text: str) -> str:
    """Composing may turn the neighbour of a joiner into ASCII (a Kelvin sign becomes K), so both until nothing changes."""
    while True:
        tidy = unicodedata.normalize("NFC", _without_strays(text))
        if tidy == text:
            return text
        text = tidy


def _without_strays(text: str) -> str:
    """Joiners stay one at a time and only between non-ASCII characters: Persian, Indic scripts and emoji need those."""
    while _JOINER.search(text):
        tidy = _STRAY_JOINER.sub("", _JOINERS.sub(r"\1", text))
        if tidy == text:
            break
        text = tidy
    return text
