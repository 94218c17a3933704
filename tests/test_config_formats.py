"""The options of formats and signatures: what they demand of one another is found before anything starts."""

from __future__ import annotations

import pytest

from acs_aaep_bridge.config import load
from acs_aaep_bridge.errors import ConfigError

URL = "schema_registry.url"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"normalized.format": "avro"}, "Avro needs schema_registry.url"),
        ({"input.formats": "json,avro"}, "Avro needs schema_registry.url"),
        ({URL: "registry:8081"}, "schema_registry.url"),
        ({URL: "http://r", "schema_registry.username": "u"}, "needs both username and password"),
        ({URL: "http://r", "schema_registry.password": "P"}, "needs both username and password"),
        (
            {
                URL: "http://r",
                "schema_registry.username": "u",
                "schema_registry.password": "P",
                "schema_registry.bearer_token": "T",
            },
            "either username and password or bearer_token",
        ),
        ({URL: "http://r", "schema_registry.ca_file": "/ca.pem"}, "need an https url"),
        ({URL: "https://r", "schema_registry.cert_file": "/c.pem"}, "needs both cert_file and key_file"),
        ({URL: "https://r", "schema_registry.timeout": "50ms"}, "schema_registry.timeout"),
        ({"signature.mode": "verify"}, "needs at least one key"),
    ],
)
def test_what_does_not_fit_together_is_named(options: dict[str, str], says: str) -> None:
    """With the option and what to do."""
    secrets = {name: {"env": value} for name, value in options.items() if name.endswith(("password", "bearer_token"))}
    with pytest.raises(ConfigError, match=says):
        load("", {}, {**options, **secrets})  # type: ignore[dict-item]


@pytest.mark.parametrize(
    "options",
    [
        {"normalized.format": "avro", URL: "http://r"},
        {"input.formats": "avro", URL: "https://r/apis/ccompat/v7", "schema_registry.ca_file": "/ca.pem"},
        {"lifecycle.cloudevents": "true", "input.replay_guard": "true"},
    ],
)
def test_what_fits_is_taken(options: dict[str, str]) -> None:
    """None of it needs more than is given."""
    assert load("", {}, options)
