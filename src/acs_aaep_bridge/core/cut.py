"""Cutting text to a limit, never inside a grapheme cluster (docs/mapping.md, 3)."""

from __future__ import annotations

from collections.abc import Callable

import regex

ELLIPSIS = "…"

_CLUSTER = regex.compile(r"\X")
# Between two of these there is always a cluster boundary (UAX 29), so clusters can be counted from there.
_SURE = regex.compile(r"(?r)[\x20-\x7e\u4e00-\u9fff\uac00-\ud7a3](?=[\x20-\x7e\u4e00-\u9fff\uac00-\ud7a3])")
_LOOK_BACK = 512


def boundary(text: str, limit: int) -> int:
    """The last grapheme cluster boundary at or before `limit` characters."""
    if limit >= len(text):
        return len(text)
    near = _SURE.search(text, max(0, limit - _LOOK_BACK), limit)
    position = near.end() if near else 0
    for match in _CLUSTER.finditer(text, position):
        if match.end() > limit:
            return match.start()
    return limit


def cut(text: str, limit: int) -> str:
    """`text` within `limit` characters, `…` last where something was cut off."""
    if len(text) <= limit:
        return text
    return text[: boundary(text, limit - 1)].rstrip() + ELLIPSIS


def cut_to(text: str, budget: int, size: Callable[[str], int]) -> str:
    """`text` cut until `size` of it is at most `budget`; `…` alone when nothing more fits."""
    actual = size(text)
    while actual > budget and text != ELLIPSIS:
        text = cut(text, max(1, min(len(text) - 1, len(text) * budget // actual))) if len(text) > 1 else ELLIPSIS
        actual = size(text)
    return text
