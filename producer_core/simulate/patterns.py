"""The shop's patterns of hours and seasons, places, and frauds.

Each is made from the dictionary of a DataGenerationConfig (`vars(config)` is a live view, so that changed settings
apply at once) and a random source.
"""

from producer_core.simulate.fraud import FraudPatterns, FraudType
from producer_core.simulate.places import GeographicLocation, GeographicPatterns
from producer_core.simulate.times import SeasonalPatterns, TemporalContext, TemporalPatterns

__all__ = [
    "FraudPatterns",
    "FraudType",
    "GeographicLocation",
    "GeographicPatterns",
    "SeasonalPatterns",
    "TemporalContext",
    "TemporalPatterns",
]
