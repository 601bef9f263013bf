"""Unit tests: no service, seconds together. Properties are tried without a deadline: two busy cores are slow."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ours", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ours")
