"""Redaction: what looks like a secret is masked with its name, and ordinary words are left alone."""

from __future__ import annotations

import pytest

from acs_aaep_bridge.core.redact import _BARE_GUARDS, BARE, MASK, NAMED, Pattern, redact

PEM = "-----BEGIN RSA PRIVATE KEY----- MIIEpAIBAAKCAQEA -----END RSA PRIVATE KEY-----"
SECRETS = [
    ("send Bearer abcdefghijklmno1 now", "send [redacted] now"),
    ("BASIC dXNlcjpwYXNzd29yZDE=", MASK),
    ("key sk-proj-abcdefghijklmnopqrst", f"key {MASK}"),
    ("key sk-ant-api03-Zm9v-YmFy", f"key {MASK}"),
    ("AKIAIOSFODNN7EXAMPLE and ASIAIOSFODNN7EXAMPLE", f"{MASK} and {MASK}"),
    ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", MASK),
    ("github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz", MASK),
    ("glpat-abcdefghij0123456789", MASK),
    ("xoxb-123456789012-abcdefghij", MASK),
    ("xapp-1-A0123456789-abcdef", MASK),
    ("post to https://hooks.slack.com/services/T000/B000/XXXX1234", f"post to https://{MASK}"),
    ("AIzaSyA1234567890abcdefghijklmnopqrstuv", MASK),
    ("ya29.a0AfH6SMBabcdefghijklmnop", MASK),
    ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc_DEF-123", MASK),
    (PEM, MASK),
    (f"before {PEM} after", f"before {MASK} after"),
    ("-----BEGIN CERTIFICATE----- cut off", MASK),
    ("https://user:hunter2@example.com/x", f"https://{MASK}@example.com/x"),
    ("postgres://admin@db", f"postgres://{MASK}@db"),
    ("password: hunter2", MASK),
    ("DB_PASSWORD=hunter2 next", f"{MASK} next"),
    ("my.secret.name = 'two words' next", f"{MASK} next"),
    ('{"api_key":"a \\" b","n":1}', f'{{{MASK},"n":1}}'),
    ('{"tokens":["a","b"],"n":1}', f'{{{MASK},"n":1}}'),
    ('{"secret":{"a":"b"},"n":1}', f'{{{MASK},"n":1}}'),
    ('{\\"passwd\\": \\"two words\\"} x', f"{{{MASK}}} x"),
    ("X-Api-Key: abc123, next", f"{MASK}, next"),
    ("Authorization: Bearer short next", f"{MASK} next"),
    ("authorization=Digest username next", f"{MASK} next"),
    ("'Authorization': 'Basic abc123' next", f"{MASK} next"),
    ("proxy-authorization: custom abc next", f"{MASK} next"),
]
INNOCENT = [
    "The task-list for the risk-assessment-of-everything is ready.",
    "An sk-learn-based-pipeline was trained.",
    "Basic understanding of bearer bonds.",
    "He forgot his password. The token was lost, and it is no secret.",
    "See https://example.com/a@b for 3:00 or a=b.",
    "The authorization took 3 days.",
    "Light gathers, glass glows, eyJafjallajökull erupts.",
    "ASIA and AIzawl.",
]


@pytest.mark.parametrize(("raw", "expected"), SECRETS)
def test_a_secret_is_masked(raw: str, expected: str) -> None:
    assert redact(raw) == expected


@pytest.mark.parametrize("text", INNOCENT)
def test_ordinary_words_are_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("pattern", [*NAMED, *BARE], ids=lambda pattern: pattern.guards[0])
def test_every_pattern_has_an_example(pattern: Pattern) -> None:
    """A pattern that no example needs would be a pattern that nobody has seen work."""
    rest_named = tuple(p for p in NAMED if p is not pattern)
    rest_bare = tuple(p for p in BARE if p is not pattern)
    assert any(_by(rest_named, rest_bare, raw) != expected for raw, expected in SECRETS)


def _by(named: tuple[Pattern, ...], bare: tuple[Pattern, ...], text: str) -> str:
    for guards, apply in (*named, *bare):
        if any(guard in text.lower() or guard in text for guard in guards):
            text = apply(text)
    return text


def test_every_guard_of_a_shape_is_looked_for() -> None:
    """The shortcut before the shapes leaves none of their guards out."""
    shortcut = sorted(guard for _, guards in _BARE_GUARDS for guard in guards)
    assert shortcut == sorted(guard for pattern in BARE for guard in pattern.guards)
