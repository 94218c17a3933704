pytest_plugins = ["tests.brokers.plugin"]
