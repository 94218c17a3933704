from hypothesis import settings

pytest_plugins = ["tests.brokers.plugin"]

# How long one example takes says nothing on a machine that is busy with brokers.
settings.register_profile("bridge", deadline=None)
settings.load_profile("bridge")
