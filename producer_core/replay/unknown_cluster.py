"""The rule for dead letters of an unknown cluster, shared by the plan of a replay and its dry run."""

from __future__ import annotations

from producer_core.events import SAFE_VERDICTS

_SAFE = ", ".join(f"'{verdict}'" for verdict in SAFE_VERDICTS)
MAY_BE_ELSEWHERE = f"(cluster_id = '' AND coalesce(?, '') <> '' AND verdict NOT IN ({_SAFE}))"
"""SQL condition for a dead letter that may already be on a topic of an unknown cluster.

The parameter is the destination of the replay; NULL if the operator has named the destination, which admits the record.
"""
