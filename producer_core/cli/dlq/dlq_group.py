"""The `dlq` commands: look at dead letters, and decide what becomes of them."""

from __future__ import annotations

import click

from producer_core.cli.dlq import archive_purge, export_import, list_show, publish_fetch, replay_dead_letters


@click.group(short_help="Dead letters: look, replay, archive, restore, purge.")
def dlq() -> None:
    """Dead letters: messages that will not be sent again by themselves.

    Every command takes the same selection (--topic, --group, --verdict, --since, ...) and means the same by it;
    without one it means all that wait. An act says its number first, and asks.

    None is ever dropped: when more wait than the bounds allow (by number, bytes or age; see store set --help) an alert
    says so. What a person sees is masked; --reveal shows it and is in the audit.

    \b
      producer-core dlq groups                      what died, by cause
      producer-core dlq list --topic orders         which messages
      producer-core dlq show MESSAGE_ID             one of them, with its whole story
      producer-core dlq replay --topic orders       send them again
      producer-core dlq archive --group 1f2e3d4c5b6a   put aside; restore brings back
    """


for command in (
    *list_show.COMMANDS,
    replay_dead_letters.replay,
    *archive_purge.COMMANDS,
    *export_import.COMMANDS,
    *publish_fetch.COMMANDS,
):
    dlq.add_command(command)
dlq.add_command(archive_purge.archive, name="clear")
