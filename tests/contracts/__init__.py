"""What the workers rely on, the same for the memory, the embedded and the real broker."""
