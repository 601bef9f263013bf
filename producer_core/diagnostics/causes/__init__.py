"""The diagnosis: why sending is slow or fails, as ranked sentences from numbers; without numbers nothing is said.

A rule looks at the numbers of one slice of time and may find something. Causes weigh more than what follows from them:
a broker that is down fills the queue, and both are said, the broker first.
"""

from producer_core.diagnostics.causes.ranking import diagnose, over_time
from producer_core.diagnostics.causes.values import (
    BrokerNumbers,
    CauseFinding,
    CauseInputs,
    Tone,
    mean,
    merged,
)

__all__ = ["BrokerNumbers", "CauseFinding", "CauseInputs", "Tone", "diagnose", "mean", "merged", "over_time"]
