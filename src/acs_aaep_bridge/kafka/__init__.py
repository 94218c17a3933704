"""The shell around Kafka: sockets, tasks and the clock."""
