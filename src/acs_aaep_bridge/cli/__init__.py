"""The command line. `main` is the entry point; each command lives in a module of its own, imported when it is called for."""

from acs_aaep_bridge.cli.program import main

__all__ = ["main"]
