"""Unit tests: no service, seconds together. Properties are tried without a deadline: two busy cores are slow.

They try the same examples in every run, so that a run says something about the change and not about its luck;
`pytest --hypothesis-profile=explore` tries many others.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "ours", deadline=None, max_examples=60, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("explore", settings.get_profile("ours"), derandomize=False, max_examples=2000)
settings.load_profile("ours")
