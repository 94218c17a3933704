"""Every error the bridge raises on purpose. Each names its fate.

    BridgeError
    ├── ConfigError            exit 2   the configuration; carries every problem found
    ├── UsageError             exit 2   a command was given something it cannot use
    ├── StartError             exit 3   broker, topic or authorization, found at start
    │   ├── BrokerUnreachable
    │   ├── TopicError
    │   ├── AuthorizationError
    │   ├── CodecMissing
    │   └── RegistryError     the schema registry: out of reach, no such schema, or not compatible
    ├── PartitionTakeError     exit 4   a partition could not be taken five times in ten minutes
    ├── StalledError           exit 5   no commit progress although there is lag
    ├── OwnershipLost          drop     the partition moved on: its open work is discarded, never committed
    ├── Braked                 block    too many rejected records in a row: the partition waits for an operator
    ├── RegistryUnavailable    block    the schema registry gives no usable answer: asked again until it does
    ├── OffsetOutOfRange       block    the committed offset is no longer in the log
    └── UnreadableState        block    a changelog entry that this version cannot read

A record that is wrong is not an error here: the core returns `Reject`, a value (see `core.model`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Problem(NamedTuple):
    """One thing wrong with the configuration: `path` is dotted (`kafka.sasl.username`), `message` says what to do."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class BridgeError(Exception):
    """Root of the tree; `exit_code` is what the process ends with when it reaches the command line."""

    exit_code = 70


class ConfigError(BridgeError):
    """The configuration cannot be used. `problems` holds all of them, in file order."""

    exit_code = 2

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("; ".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


class UsageError(BridgeError):
    """A command was given an input it cannot use."""

    exit_code = 2


class StartError(BridgeError):
    """The bridge cannot start: what Kafka offers does not fit what the configuration asks."""

    exit_code = 3


class BrokerUnreachable(StartError):
    """No bootstrap server answered, or the handshake with it failed."""


class TopicError(StartError):
    """A topic is missing, or its partitions or settings do not fit."""


class AuthorizationError(StartError):
    """The broker refused the credentials or the operation."""


class CodecMissing(StartError):
    """A compression codec that the configuration names is not installed."""


class RegistryError(StartError):
    """The schema registry cannot be reached, lacks the schema, or refuses it as incompatible."""


class PartitionTakeError(BridgeError):
    """A partition could not be taken over five times in ten minutes."""

    exit_code = 4


class StalledError(BridgeError):
    """There is lag and no commit progress, also after the consumer was rebuilt."""

    exit_code = 5


class OwnershipLost(BridgeError):
    """The partition belongs to someone else now; open work of this assignment is dropped."""


class Braked(BridgeError):
    """Too many records in a row were rejected; the partition is paused until a restart."""


class RegistryUnavailable(BridgeError):
    """The schema registry gave no usable answer; the records that need it wait."""


class OffsetOutOfRange(BridgeError):
    """The committed offset of a partition is not in its log any more; `input.on_out_of_range` decides."""


class UnreadableState(BridgeError):
    """A changelog entry cannot be read by this version."""
