"""Stream bridge from ACS agent hook events to AAEP accessibility lifecycle events on Kafka."""

__version__ = "0.1.0"
