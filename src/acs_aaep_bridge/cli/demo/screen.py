"""What the demonstration shows: what agents send, what comes out, and what a person would hear.

On a terminal three columns that move; elsewhere, and with `--plain`, one line after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

Column = Literal["in", "out", "heard"]

_TITLES: Final[dict[Column, str]] = {"in": "Agents send", "out": "The bridge publishes", "heard": "A person hears"}
_KEPT: Final = 200


class Screen(Protocol):
    """Takes lines of plain text, already safe for a terminal."""

    def add(self, column: Column, line: str, style: str = "") -> None:
        """A new line in a column."""

    def status(self, line: str) -> None:
        """What is going on now; replaces what was said before."""


class PlainScreen:
    """One line after the other, each with its column's name in front."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def add(self, column: Column, line: str, style: str = "") -> None:
        self._console.print(f"{column:5} | {line}", markup=False, highlight=False, soft_wrap=True)

    def status(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class LiveScreen:
    """Three columns side by side, or one above the other where the terminal is narrow; the newest line is at the bottom."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lines: dict[Column, deque[Text]] = {column: deque(maxlen=_KEPT) for column in _TITLES}
        self._status = ""

    def add(self, column: Column, line: str, style: str = "") -> None:
        self._lines[column].append(Text(line, style=style, no_wrap=True, overflow="ellipsis"))

    def status(self, line: str) -> None:
        self._status = line

    def __rich__(self) -> Group:
        height = max(self._console.height - 4, 9)
        wide = self._console.width >= 100
        each = height if wide else height // 3
        panels = [self._panel(column, each) for column in _TITLES]
        if not wide:
            return Group(*panels, Text(self._status, no_wrap=True, overflow="ellipsis"))
        grid = Table.grid(expand=True)
        for _ in panels:
            grid.add_column(ratio=1)
        grid.add_row(*panels)
        return Group(grid, Text(self._status, no_wrap=True, overflow="ellipsis"))

    def _panel(self, column: Column, height: int) -> Panel:
        shown = list(self._lines[column])[-(height - 2) :]
        return Panel(Group(*shown), title=_TITLES[column], height=height, title_align="left")


@contextmanager
def screen(plain: bool) -> Iterator[Screen]:
    """The screen that fits standard output."""
    console = Console()
    if plain or not console.is_terminal:
        yield PlainScreen(console)
        return
    shown = LiveScreen(console)
    with Live(shown, console=console, refresh_per_second=8):
        yield shown
