"""Our standing with the broker: does the log still hold what it acknowledged?"""

from producer_core.delivery.loss_detection.broker_queries import Asker, BrokerAsker, Wanted
from producer_core.delivery.loss_detection.evidence import (
    Case,
    Evidence,
    Finding,
    Look,
    Mark,
    Trigger,
    classify,
)
from producer_core.delivery.loss_detection.monitor import Standing

__all__ = [
    "Asker",
    "BrokerAsker",
    "Case",
    "Evidence",
    "Finding",
    "Look",
    "Mark",
    "Standing",
    "Trigger",
    "Wanted",
    "classify",
]
