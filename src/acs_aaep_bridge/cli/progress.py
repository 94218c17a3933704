"""A progress bar on standard error, where that is a terminal; nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

Advance = Callable[[int, int], None]
"""Called with how much is done, of how much; 0 for a total that is not known."""


@contextmanager
def bar(what: str) -> Iterator[Advance]:
    """A bar called `what` while the block runs. It disappears when the block ends: what was done is told in a sentence."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    shown = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*shown, console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total or None)
