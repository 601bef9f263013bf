"""Our standing with the broker: does the log still hold what it acknowledged?"""

from producer_core.standing.ask import Asker, BrokerAsker, Wanted
from producer_core.standing.evidence import Case, Evidence, Finding, Look, Mark, Trigger, classify
from producer_core.standing.watch import Standing

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
