"""What looks like a secret becomes `[redacted]`, key and value together (docs/mapping.md, 3; AAEP: no secrets in text).

Every pattern is linear: its repetitions are bounded, or end at the first character outside of their class. And every
pattern is guarded by literals, one of which must occur before it is tried at all, since most texts hold no secret and
redaction would otherwise be the slowest step of all.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

MASK = "[redacted]"

_VALUE = r"""(?:"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|\\+"[^"]*"?|\\+'[^']*'?|\[[^\]]*\]?|\{[^}]*\}?|[^\s,;&"'<>)}\]]+)"""
_TO_VALUE = r"""[\w.-]{0,64}(?:\\{0,8}["'])?\s{0,8}[:=]\s{0,8}"""
_NAMED = re.compile(rf"(?:password|passwd|secret|token|api[_-]?key){_TO_VALUE}{_VALUE}", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    rf"""authorization{_TO_VALUE}(?:(?:\\{{0,8}}["'])?[A-Za-z][\w-]{{0,31}}\s{{1,8}}(?=[^\s,;&"'<>)}}\]:=]{{3}})[^\s,;&"'<>)}}\]]+(?:\\{{0,8}}["'])?|{_VALUE})""",
    re.IGNORECASE,
)
_NAME_START = re.compile(r"""(?:\\{0,8}["'])?[\w.-]{0,64}\Z""")
_RUN = re.compile(r"[A-Za-z0-9]{16}")


class Pattern(NamedTuple):
    """One kind of secret, tried when one of `guards` occurs."""

    guards: tuple[str, ...]
    apply: Callable[[str], str]


def redact(text: str) -> str:
    """`text` with what looks like a secret masked. Linear in its length."""
    if ":" in text or "=" in text:
        text = _guarded(NAMED, text.lower(), text)
    if "asic" in text or "earer" in text or "ASIC" in text or "EARER" in text:
        text = _SCHEME.sub(MASK, text)
    for character, guards in _BARE_GUARDS:
        if character in text:
            for guard in guards:
                if guard in text:
                    return _guarded(BARE, text, text)
    return text


def _guarded(patterns: tuple[Pattern, ...], subject: str, text: str) -> str:
    for guards, apply in patterns:
        for guard in guards:
            if guard in subject:
                text = apply(text)
                break
    return text


def _masking(pattern: str, flags: int = 0) -> Callable[[str], str]:
    compiled = re.compile(pattern, flags)
    return lambda text: compiled.sub(MASK, text)


def _mask_named(compiled: re.Pattern[str]) -> Callable[[str], str]:
    """Masks name, separator and value. The name is looked for backwards from its keyword: forwards it would be quadratic."""

    def apply(text: str) -> str:
        parts: list[str] = []
        done = 0
        for match in compiled.finditer(text):
            before = text[max(done, match.start() - 80) : match.start()]
            name = _NAME_START.search(before)
            start = match.start() - (len(before) - name.start() if name else 0)
            parts += (text[done:start], MASK)
            done = match.end()
        return "".join((*parts, text[done:])) if parts else text

    return apply


def _mask_user_info(text: str) -> str:
    return _USER_INFO.sub(f"://{MASK}@", text)


def _mask_sk(text: str) -> str:
    """`sk-` begins ordinary words too (sk-learn-based-pipeline): a key has digits, or one long unbroken run."""
    return _SK.sub(lambda match: MASK if _RUN.search(match[0]) or any(map(str.isdigit, match[0])) else match[0], text)


_USER_INFO = re.compile(r"://[^\s/?#\"'<>]+@")
_SK = re.compile(r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}")

_SCHEME = re.compile(r"\b(?:bearer|basic)\s{1,8}(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)

# A name or a place, a separator and a value: guards are looked for in the lower-cased text.
NAMED: tuple[Pattern, ...] = (
    Pattern(("://",), _mask_user_info),
    Pattern(("authorization",), _mask_named(_AUTHORIZATION)),
    Pattern(("password", "passwd", "secret", "token", "apikey", "api_key", "api-key"), _mask_named(_NAMED)),
)

# Secrets that are recognized by their own shape.
BARE: tuple[Pattern, ...] = (
    Pattern(("-----BEGIN ",), _masking(r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)", re.DOTALL)),
    Pattern(("eyJ",), _masking(r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*){0,3}")),
    Pattern(("sk-",), _mask_sk),
    Pattern(("AKIA", "ASIA", "ABIA", "ACCA"), _masking(r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}")),
    Pattern(("gh",), _masking(r"gh[pousr]_[A-Za-z0-9]{20,}")),
    Pattern(("github_pat_",), _masking(r"github_pat_[A-Za-z0-9_]{20,}")),
    Pattern(("gl",), _masking(r"gl(?:pat|dt|rt|soat|ptt|cbt|ft|imt|agent|oas)-[A-Za-z0-9_.-]{16,}")),
    Pattern(("xox", "xapp-"), _masking(r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}")),
    Pattern(("hooks.slack.com",), _masking(r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{10,}")),
    Pattern(("AIza",), _masking(r"AIza[A-Za-z0-9_-]{30,}")),
    Pattern(("ya29.", "GOCSPX-"), _masking(r"(?:ya29\.|GOCSPX-)[A-Za-z0-9_-]{20,}")),
)
# Each shape has one character that few texts hold, looked for before its guards are.
_RARE = {
    "-": ("-----BEGIN ", "sk-", "gl", "xox", "xapp-", "GOCSPX-"),
    "_": ("gh", "github_pat_"),
    ".": ("eyJ", "ya29.", "hooks.slack.com"),
    "A": ("AKIA", "ASIA", "ABIA", "ACCA", "AIza"),
}
_BARE_GUARDS = tuple(_RARE.items())
