"""Text from records, made safe for a terminal: it must be able to speak, not to command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

_CONTROL: Final = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # escape sequences, whole
    "|[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]"
)


def safe(text: str, limit: int = 16_384) -> str:
    """`text` on one line, without escape sequences, control characters and direction overrides, at most `limit` characters."""
    cleaned = " ".join(_CONTROL.sub(" ", text[: limit * 2]).split())
    return cleaned if len(cleaned) <= limit else cleaned[: limit - 1] + "…"


def columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The rows as lines of plain text, every cell but the last padded to its column's width."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
