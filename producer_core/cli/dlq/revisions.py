"""The `dlq` commands that show the edits of dead letters and undo them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from producer_core._internal.masking import mask_text
from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.dlq import filter_options
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.dlq.revisions.revision import Lineage, Revision
    from producer_core.store import Store


@click.command(short_help="Show the edits of one dead letter.")
@click.argument("message_id")
@options.store_option
@options.as_json
def revisions(message_id: str, store_path: Path | None, as_json: bool) -> None:
    """Show the revisions of one dead letter: who changed what, when and why. Masked fields are shown masked.

    \b
      producer-core dlq revisions 019a2b3c-...-17
    """
    from producer_core.dlq.revisions.editor import Editor

    editor = Editor(_opened(store_path))
    lineage = editor.lineage(message_id)
    if not lineage.revisions and lineage.replaced_by is None and editor.decoded(message_id) is None:
        raise Failed(f"Dead letter {message_id} does not exist.", "See producer-core dlq list --state any.")
    if as_json:
        output.emit(_lineage_json(message_id, lineage))
        return
    if lineage.replaced_by is not None:
        output.say(f"The edit of this dead letter is {lineage.replaced_by}.")
    elif not lineage.revisions:
        output.say("This dead letter has no edits.")
    for one in lineage.revisions:
        undone = (
            "" if one.undone_at is None else f", undone {output.moment(one.undone_at)} by {one.undone_by}"
        )
        output.say(
            f"revision {one.number}  {output.moment(one.made_at)}  {one.who}{undone}: {mask_text(one.reason)}"
        )
        for text in _changes(one):
            output.say(f"  {text}")


@click.command(short_help="Undo the latest edit of dead letters.")
@filter_options.filter_options
@options.yes
@options.store_option
@options.as_json
def undo(store_path: Path | None, yes: bool, as_json: bool, **given: Any) -> None:
    """Undo the latest edit of each selected dead letter that has one. The edit before it then applies, or the original.

    An edit that a replay has claimed or sent cannot be undone. The revision stays in the history, marked as undone. If the
    edit is a new message, its original becomes pending again.

    \b
      producer-core dlq undo --message-id ID
      producer-core dlq undo --topic orders
    """
    from producer_core.dlq import DeadLetters
    from producer_core.dlq.revisions.editor import Editor

    store = _opened(store_path)
    editor = Editor(store)
    where = filter_options.frozen(DeadLetters(store), filter_options.chosen(given, state="any"))
    if number := editor.edited(where):
        options.confirm(f"Undo the latest edit of {plural(number, 'dead letter')}?", yes)
    result = editor.undo(where, who=options.current_user(), origin="cli")
    if as_json:
        output.emit({"count": result.count, "left": result.left, "text": result.text})
    else:
        output.say(result.text)


COMMANDS = (revisions, undo)


def _opened(store_path: Path | None) -> Store:
    from producer_core.store import Store

    return Store.open(store_path, create=False)


def _lineage_json(message_id: str, lineage: Lineage) -> dict[str, Any]:
    return {
        "message_id": message_id,
        "replaced_by": lineage.replaced_by,
        "revisions": [
            {
                "number": one.number,
                "made_at": one.made_at,
                "who": one.who,
                "origin": one.origin,
                "reason": mask_text(one.reason),
                "changes": list(_changes(one)),
                "replaces": one.replaced_id,
                "undone_at": one.undone_at,
                "undone_by": one.undone_by,
            }
            for one in lineage.revisions
        ],
    }


def _changes(revision: Revision) -> tuple[str, ...]:
    from producer_core.dlq.revisions.revision_text import change_lines

    return change_lines(revision.patch)
