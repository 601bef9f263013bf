"""The reasons and phrases from which the sentences about replays are built."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from producer_core._internal.plural import plural

# reasons for which a record is not sent

NO_TOPIC = "the topic no longer exists; create it and replay again"
NEWER_KEY = "the topic has a newer record with its key, and consumers would read the old value last"
NEVER_SENT = "not replayable; fix the source"
QUARANTINED = "quarantined after failing again"
OTHER_CLUSTER = "from another cluster"
UNKNOWN_CLUSTER = (
    "possibly on an unknown cluster, so not sent to this one; to send it here, specify this cluster with --to"
)
CHANGED = "changed after the replay was planned"
CANCELLED = "cancelled before being sent"
UNDECIDED = "the plan expired without a decision"
UNCLAIMED_REASONS: Mapping[str | None, str] = MappingProxyType(
    {
        "archived": "archived after the replay was planned",
        "purged": "purged after the replay was planned",
        "replaying": "claimed by another replay",
        "replayed": "delivered by another replay",
        "landed": "already found on the topic",
        "dead": "not replayable",
        None: "no longer in the store",
    }
)
"""Why a record could not be claimed, by the current state of its dead letter."""
ABANDONED = "the runner stopped, and no other runner can search the topic"

SENT_ANYWAY = "inconclusive records are sent anyway, which may create duplicates"
"""The note in the audit log for the choice to send inconclusive records."""


def records(count: int) -> str:
    return plural(count, "record")


def stay_dead_letters(count: int) -> str:
    return "It remains a dead letter" if count == 1 else "They remain dead letters"


def newer_key_fact(count: int) -> str:
    """Return how many records have a newer record with their key, without a full stop."""
    if count == 1:
        return "The topic has a newer record for the key of 1 record"
    return f"The topic has newer records for the keys of {count:,} records"


def inconclusive_fact(count: int) -> str:
    """Return how many records may already be on their topic, without a full stop."""
    return f"{records(count)} may already be on {'its topic' if count == 1 else 'their topics'}"
