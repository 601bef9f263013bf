"""Find the clusters of a store that no longer exist, and let an operator mark one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from producer_core._internal.removed_clusters import (
    EMBEDDED,
    EMBEDDED_ENDED_AFTER,
    SETTING,
    marked_clusters,
)
from producer_core.errors import ConfigError

if TYPE_CHECKING:
    from producer_core.store.store import Store


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster with dead letters or producers, and its number of pending dead letters.

    `seen_at`: the last heartbeat of one of its producers; None without one in the store. `running`: the number of its
    producers that are open and seen within EMBEDDED_ENDED_AFTER seconds. `removed`: why the cluster no longer exists;
    empty for one that may exist.
    """

    cluster_id: str
    pending: int
    seen_at: float | None
    running: int
    removed: str = ""


def removed_clusters(store: Store, now: float) -> tuple[str, ...]:
    """Return the ids of the clusters that no longer exist: marked ones, and embedded brokers without a running producer.

    An embedded broker ends with its process, and its next start has another id. Whether any other cluster exists is
    known to operators only: an address that now belongs to another cluster proves nothing. A mark counts until a producer
    of the cluster is seen again.
    """
    with store.borrow():
        now = _as_of(store, now)
        ended = store.rows("embedded_clusters_ended", prefix=EMBEDDED, alive_since=now - EMBEDDED_ENDED_AFTER)
        gone = {row["cluster_id"] for row in ended}
        if marks := _marked(store):
            back = store.rows("clusters_seen_since", clusters=list(marks), times=list(marks.values()))
            gone |= set(marks) - {row["cluster_id"] for row in back}
        return tuple(sorted(gone))


def cluster_states(store: Store, now: float) -> tuple[ClusterState, ...]:
    """Return the clusters of a store, those with the most pending dead letters first."""
    with store.borrow():
        now = _as_of(store, now)
        rows = store.rows("cluster_states", alive_since=now - EMBEDDED_ENDED_AFTER)
        marked, removed = _marked(store), removed_clusters(store, now)
    return tuple(
        ClusterState(
            **row,
            removed=_reason(row["cluster_id"] in marked) if row["cluster_id"] in removed else "",
        )
        for row in rows
    )


def mark_removed(store: Store, cluster_id: str, removed: bool, *, who: str, origin: str, now: float) -> None:
    """Mark that a cluster no longer exists, or take the mark back, with one audit entry.

    Its pending dead letters stay in the store, but no alert counts them. Raise ConfigError for a cluster that has a running
    producer, or that the store does not know, and for a mark that does not change anything.
    """
    with store.borrow(write=True):
        marked = _marked(store)
        is_marked = cluster_id in marked and (not removed or cluster_id in removed_clusters(store, now))
        if is_marked == removed:
            raise ConfigError(
                f"The cluster {cluster_id} is {'already' if removed else 'not'} marked as removed.",
                fix="List the clusters with producer-core dlq clusters list.",
            )
        known = {one.cluster_id: one for one in cluster_states(store, now)}
        if removed:
            _check_removable(known.get(cluster_id), cluster_id)
        kept = {one: at for one, at in marked.items() if one != cluster_id}
        if removed:
            kept[cluster_id] = now
        store.change_settings({SETTING: kept or None}, who=who, origin=origin)


def _check_removable(known: ClusterState | None, cluster_id: str) -> None:
    if known is None:
        raise ConfigError(
            f"The store has no producer and no dead letter of the cluster {cluster_id!r:.80}.",
            fix="List the clusters with producer-core dlq clusters list.",
        )
    if known.running:
        raise ConfigError(f"A producer of the cluster {cluster_id} is running, so the cluster exists.")


def _as_of(store: Store, now: float) -> float:
    """Return the time of the export for the store of an incident bundle, whose producers send no more heartbeats."""
    return float(store.get_setting("incident")["exported_at"]) if store.is_incident else now


def _marked(store: Store) -> dict[str, float]:
    try:
        return marked_clusters(store.settings())
    except ConfigError:  # written by another version
        return {}


def _reason(marked: bool) -> str:
    return "marked as removed" if marked else "its embedded broker has ended"
