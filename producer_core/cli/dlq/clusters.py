"""The `dlq clusters` commands: the clusters of dead letters, and those that no longer exist."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import click

from producer_core.cli import options, output


@click.group(short_help="List clusters; mark one that no longer exists.")
def clusters() -> None:
    """List the clusters of a store, and mark one that no longer exists.

    Dead letters of a cluster that no longer exists stay in the store, and the lists mark them, but no alert and no
    objective counts them. An embedded broker no longer exists 40 seconds after the last heartbeat of its producers, because
    its next start has another cluster id. For every other cluster, only an operator knows: a marked cluster counts as
    removed until "unmark", or until one of its producers is seen again.

    Their dead letters can be replayed to another cluster with "dlq replay --to", exported or archived.

    \b
      producer-core dlq clusters list
      producer-core dlq clusters mark-removed 4L6g3nShT-eMCtK--X86sw
    """


@clusters.command(name="list", short_help="List the clusters of a store.")
@options.store_option
@options.as_json
def list_(store_path: Path | None, as_json: bool) -> None:
    """List the clusters with producers or pending dead letters, those with the most dead letters first.

    The JSON object is {"clusters": [{"cluster_id", "pending", "seen_at", "running", "removed"}]}. "removed" is the reason
    why the cluster no longer exists, or empty; times are seconds since 1970.
    """
    from producer_core.store import Store
    from producer_core.store.removed_clusters import cluster_states

    found = cluster_states(Store.open(store_path, create=False), time.time())
    if as_json:
        output.emit({"clusters": [dataclasses.asdict(one) for one in found]})
    elif not found:
        output.say("The store has no producers and no pending dead letters.")
    else:
        rows = [
            [
                one.cluster_id,
                f"{one.pending:,}",
                str(one.running),
                "-" if one.seen_at is None else output.ago(one.seen_at),
                f"no longer exists: {one.removed}" if one.removed else "",
            ]
            for one in found
        ]
        output.table(("cluster", "pending", "running", "last seen", "state"), rows, shrink=("state",))


@clusters.command(name="mark-removed", short_help="Mark a cluster that no longer exists.")
@click.argument("cluster_id", metavar="CLUSTER")
@options.store_option
@options.as_json
def mark_removed_(cluster_id: str, store_path: Path | None, as_json: bool) -> None:
    """Mark that CLUSTER no longer exists, so that no alert counts its dead letters. The audit log records it.

    A cluster with a running producer cannot be marked. The mark ends when a producer of the cluster is seen again.
    """
    _mark(cluster_id, True, store_path, as_json)


@clusters.command(short_help="Remove the mark from a cluster.")
@click.argument("cluster_id", metavar="CLUSTER")
@options.store_option
@options.as_json
def unmark(cluster_id: str, store_path: Path | None, as_json: bool) -> None:
    """Remove the mark from CLUSTER: its dead letters count again."""
    _mark(cluster_id, False, store_path, as_json)


def _mark(cluster_id: str, removed: bool, store_path: Path | None, as_json: bool) -> None:
    from producer_core.store import Store
    from producer_core.store.removed_clusters import mark_removed

    store = Store.open(store_path, create=False)
    mark_removed(store, cluster_id, removed, who=options.current_user(), origin="cli", now=time.time())
    if as_json:
        output.emit({"cluster_id": cluster_id, "removed": removed})
    elif removed:
        output.say(f"Marked the cluster {cluster_id} as removed. No alert counts its dead letters.")
    else:
        output.say(f"The cluster {cluster_id} is no longer marked. Its dead letters count again.")
