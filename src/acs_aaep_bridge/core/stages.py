"""The stages: the table of contents of the core."""

from __future__ import annotations

from collections.abc import Sequence

from acs_aaep_bridge.config import Config
from acs_aaep_bridge.core.model import Emit, Outcome, PartitionState, Record, Reject, Stage, StageName, WriterSchema


class Stateless:
    """The state of a stage that keeps none."""

    def next_deadline(self) -> int | None:
        return None

    def changes(self) -> Sequence[tuple[bytes, bytes | None]]:
        return ()

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def load(self, key: bytes, value: bytes | None) -> None: ...

    def loaded(self) -> None: ...

    def open_sessions(self) -> int:
        return 0


class NormalizeStage:
    """Raw records in, normalized events out. Keeps no state between records."""

    name: StageName = "normalize"

    def __init__(self, config: Config) -> None:
        self._config = config

    def new_state(self) -> PartitionState:
        return Stateless()

    def apply(self, record: Record, state: PartitionState, now: int) -> tuple[Outcome, ...]:
        return (Reject("normalize", "output_invalid", "the normalize stage is being built"),)

    def wants(self, records: Sequence[Record]) -> frozenset[int]:
        return frozenset()

    def learn(self, schema_id: int, schema: WriterSchema | None) -> None: ...

    def advance(self, state: PartitionState, now: int) -> tuple[Emit, ...]:
        return ()


def build_stage(name: StageName, config: Config) -> Stage:
    """The stage called `name`. Compiles its schemas, so build each once; blocks for some ten milliseconds."""
    if name == "normalize":
        return NormalizeStage(config)
    raise NotImplementedError(name)
