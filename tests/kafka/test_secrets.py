"""Signature secrets from files and the environment, and what happens when they change."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from acs_aaep_bridge.config import Signature, load
from acs_aaep_bridge.errors import ConfigError
from acs_aaep_bridge.kafka import secrets
from acs_aaep_bridge.kafka.around import around
from acs_aaep_bridge.kafka.memory import MemoryBackend, MemoryLog
from acs_aaep_bridge.kafka.observer import NullObserver
from acs_aaep_bridge.kafka.runner import Parts, run_on


def signature(mode: str = "verify", **files: Path) -> Signature:
    return Signature.model_validate({"mode": mode, "keys": {name: {"file": str(file)} for name, file in files.items()}})


@pytest.mark.parametrize(
    ("content", "secret"),
    [
        (b"text", b"text"),
        (b"text\n", b"text"),
        (b"text\r\n", b"text"),
        (b"text\n\n", b"text\n\n"),
        (b"\x00\x01\n", b"\x00\x01\n"),
        (bytes(range(32)), bytes(range(32))),
        (b"\xff\n", b"\xff\n"),
    ],
)
def test_only_the_newline_of_a_text_is_left_out(tmp_path: Path, content: bytes, secret: bytes) -> None:
    """Random bytes that end in 0x0a are the secret as they stand."""
    (tmp_path / "k").write_bytes(content)
    assert secrets.read_secrets(signature(k=tmp_path / "k")) == {"k": secret}


def test_a_secret_may_stand_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every other secret of the configuration."""
    monkeypatch.setenv("ACS_HMAC", "text")
    assert secrets.read_secrets(Signature.model_validate({"mode": "verify", "keys": {"k": {"env": "ACS_HMAC"}}})) == {
        "k": b"text"
    }


def test_every_secret_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    """All at once, each by its key_id; an empty one is no secret."""
    (tmp_path / "empty").write_bytes(b"\n")
    with pytest.raises(ConfigError) as raised:
        secrets.read_secrets(signature(a=tmp_path / "missing", b=tmp_path / "empty"))
    assert [problem.path for problem in raised.value.problems] == ["signature.keys.a", "signature.keys.b"]


def test_no_secret_is_read_while_signatures_are_off(tmp_path: Path) -> None:
    """Nobody needs to mount what is not used."""
    assert secrets.read_secrets(signature("off", k=tmp_path / "missing")) == {}


async def test_changed_files_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new content is used; while a file is missing the last secrets stand, and that is said once."""
    monkeypatch.setattr(secrets, "EVERY", 0.01)
    file = tmp_path / "k"
    used: asyncio.Queue[Mapping[str, bytes]] = asyncio.Queue()
    said: asyncio.Queue[str] = asyncio.Queue()

    class Heard(NullObserver):
        def log(self, level: str, event: str, **fields: Any) -> None:
            assert "first" not in str(fields)
            said.put_nowait(event)

    file.write_bytes(b"first")
    settings = signature(k=file)
    following = asyncio.create_task(secrets.follow(settings, secrets.read_secrets(settings), used.put_nowait, Heard()))
    async with asyncio.timeout(10):
        file.write_bytes(b"second")
        # Reading may fall between truncating and writing: an empty file is trouble, not a secret.
        assert (await used.get()) == {"k": b"second"}
        while await said.get() != "signature.keys_changed":
            pass
        file.unlink()
        assert await said.get() == "signature.keys_unreadable"
        (tmp_path / "new").write_bytes(b"third")
        (tmp_path / "new").rename(file)
        assert (await used.get()) == {"k": b"third"}
        assert await said.get() == "signature.keys_changed"
    assert used.empty()
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following


async def test_secrets_that_can_be_followed_no_more_end_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nobody expected is a bug and ends the run: rotated secrets would go unnoticed, and good signatures be refused."""
    monkeypatch.setattr(secrets, "EVERY", 0.01)
    (tmp_path / "k").write_bytes(b"text")
    keys = {"signature.mode": "verify", "signature.keys.k.file": str(tmp_path / "k")}
    settings = load("", {}, keys)
    stop = asyncio.Event()

    def broken(signature: Signature) -> dict[str, bytes]:
        raise RuntimeError("nobody expected this")

    async with asyncio.timeout(10), around(settings, ["normalize"], NullObserver()) as found:
        monkeypatch.setattr(secrets, "read_secrets", broken)
        backend = MemoryBackend(MemoryLog(dict.fromkeys(settings.input.topics, 1), {}), settings)
        with pytest.raises(RuntimeError, match="nobody expected this"):
            await run_on(backend, settings, ["normalize"], NullObserver(), Parts(stop=stop, watch=found.watch))
