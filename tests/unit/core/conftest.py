"""Generated examples have no deadline: a busy machine is no failure."""

from hypothesis import HealthCheck, settings

settings.register_profile("busbw", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busbw")
