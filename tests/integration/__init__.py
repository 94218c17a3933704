"""The bridge as a process against real brokers."""
