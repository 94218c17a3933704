"""Kafka to test against: embedded, real, in threes, and behind locks. `plugin.py` offers them as pytest fixtures."""
