"""The `dlq` commands: list, replay, archive, export and publish dead letters."""

from __future__ import annotations

import click

from producer_core.cli.dlq import (
    approvals,
    archive_purge,
    clusters,
    edit,
    export_import,
    list_groups,
    objective,
    publish_fetch,
    replay_dead_letters,
    resolve,
    revisions,
    show,
)


@click.group(short_help="List, edit, replay, archive and purge dead letters.")
def dlq() -> None:
    """Manage dead letters: messages that failed permanently and are not retried automatically.

    groups, list, replay, edit, undo, archive, restore, purge, export and publish accept the same selection (--topic,
    --group, --verdict, --application, --since, ...). Without a selection, they apply to all pending dead letters, and
    restore to all archived ones. A command that changes dead letters prints their number and asks first.

    No dead letter is ever dropped. An alert fires when their number, size or age exceeds its limit (see "store
    set --help"). Secrets are masked; --reveal shows them and is recorded in the audit log.

    \b
      producer-core dlq groups                      dead letters by cause
      producer-core dlq list --topic orders         the messages
      producer-core dlq show MESSAGE_ID             one message with its history
      producer-core dlq edit --message-id ID --set amount=12.5 --reason "..."   correct a value
      producer-core dlq replay --topic orders       send them again
      producer-core dlq archive --group 1f2e3d4c5b6a   archive them; "dlq restore" undoes it
      producer-core dlq objective list              time to decision, and how soon they must be decided
      producer-core dlq requests --state pending    replays that wait for an approval
    """


for command in (
    *list_groups.COMMANDS,
    *show.COMMANDS,
    replay_dead_letters.replay,
    *edit.COMMANDS,
    *revisions.COMMANDS,
    *archive_purge.COMMANDS,
    *export_import.COMMANDS,
    *publish_fetch.COMMANDS,
    *resolve.COMMANDS,
    objective.objective,
    clusters.clusters,
    *approvals.COMMANDS,
):
    dlq.add_command(command)
dlq.add_command(archive_purge.archive, name="clear")
