"""The pure core: bytes in, values out. No clock, no randomness, no I/O."""
