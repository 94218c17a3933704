from hypothesis import settings

pytest_plugins = ["tests.brokers.plugin"]

# How long an example takes says how busy the machine is, and nothing about the code: speed is for the benchmarks.
settings.register_profile("bridge", deadline=None)
settings.load_profile("bridge")
