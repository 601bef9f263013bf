"""The diagnosis of slow or failing sends, as findings ranked by weight. Without measurements there are no findings.

Each rule examines the measurements of one time slice. A cause outweighs its effects: when a broker is down and the queue
fills because of that, both are reported, the broker first.
"""

from producer_core.diagnostics.causes.ranking import LATEST_S, diagnose, over_time
from producer_core.diagnostics.causes.values import (
    BrokerNumbers,
    CauseFinding,
    CauseInputs,
    Tone,
    mean,
    merged,
)

__all__ = [
    "LATEST_S",
    "BrokerNumbers",
    "CauseFinding",
    "CauseInputs",
    "Tone",
    "diagnose",
    "mean",
    "merged",
    "over_time",
]
