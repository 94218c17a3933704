"""The secrets that signatures are checked with: read at the start, and again while the bridge runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from acs_aaep_bridge.config import Secret, Signature
from acs_aaep_bridge.errors import ConfigError, Problem
from acs_aaep_bridge.kafka.observer import Observer

EVERY = 5.0  # seconds
Use = Callable[[Mapping[str, bytes]], None]


def read_secrets(signature: Signature) -> dict[str, bytes]:
    """The shared secrets by `key_id`; none while the mode is off. Blocks to read small files.

    Raises ConfigError with every one that cannot be read or is empty.
    """
    if signature.mode == "off":
        return {}
    found: dict[str, bytes] = {}
    problems: list[Problem] = []
    for key_id, secret in signature.keys.items():
        try:
            found[key_id] = read_secret(secret)
        except ConfigError as error:
            problems += [Problem(f"signature.keys.{key_id}", problem.message) for problem in error.problems]
    if problems:
        raise ConfigError(problems)
    return found


async def follow(
    signature: Signature, known: Mapping[str, bytes], use: Callable[[Mapping[str, bytes]], None], observer: Observer
) -> None:
    """Read the secrets every few seconds, for ever, and `use` them when they differ from those that are `known`.

    While one cannot be read all stay as they are: a file may be missing for a moment when it is replaced.
    """
    trouble = ""
    while True:
        await asyncio.sleep(EVERY)
        try:
            found = await asyncio.to_thread(read_secrets, signature)
        except ConfigError as error:
            if str(error) != trouble:
                observer.log("error", "signature.keys_unreadable", error=str(error))
            trouble = str(error)
            continue
        trouble = ""
        if found != known:
            known = found
            use(found)
            observer.log("info", "signature.keys_changed", keys=len(found))


def read_secret(secret: Secret) -> bytes:
    """The bytes of one secret. Blocks to read a small file; raises ConfigError."""
    if secret.file is None:
        content = secret.read().encode(errors="surrogateescape")
    else:
        try:
            content = secret.file.read_bytes()
        except OSError as error:
            raise ConfigError([Problem("", f"the secret file {secret.file} cannot be read: {error.strerror}")]) from None
        content = _without_final_newline(content)
    if not content:
        raise ConfigError([Problem("", f"the secret {secret.file or secret.env} is empty")])
    return content


def _without_final_newline(content: bytes) -> bytes:
    """An editor ends a text with a newline that is not part of the secret; random bytes may end in 0x0a, which is."""
    text = content.removesuffix(b"\n").removesuffix(b"\r")
    return text if text.isascii() and text.decode().isprintable() else content
