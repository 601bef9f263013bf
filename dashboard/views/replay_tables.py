"""The tables of replays: those that ended, what people did, why dead letters were not sent, which are in doubt."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from producer_core._internal.masking import mask_text
from producer_core.dashboard import queries, wording
from producer_core.dashboard.components.live_table import Cell, Column, TablePart, TableRow, live_table
from producer_core.dashboard.queries.replays import where_of
from producer_core.dashboard.views import common, header
from producer_core.dashboard.wording import replays as told
from producer_core.dashboard.wording.dry_run import topics as of_a_dry_run
from producer_core.replay.dry_run import DryRun
from producer_core.replay.wording import done_about

_TOPICS = 20


def address(operation_id: str) -> str:
    """Where one replay is shown from all sides."""
    return header.link("replays", operation=operation_id)


def records_address(query: Mapping[str, str]) -> str:
    """The dead letters of a selection, without what else is looked at now."""
    nothing = dict.fromkeys(("range", "topic", "producer"), None)
    return header.link("dead-letters", **{**nothing, **query})


def letter_address(message_id: str) -> str:
    """Where one dead letter is shown, in whatever state it is."""
    return records_address({"message_id": message_id, "state": "any", "letter": message_id})


def ended(replays: Sequence[queries.ReplayRow]) -> None:
    columns = (
        Column("Ended"),
        Column("By"),
        Column("What", wide=True),
        Column("Letters", number=True),
        Column("Outcome", wide=True),
        Column(
            "Took",
            number=True,
            more="From its start to its end, pauses included; the time before somebody let it go is not.",
        ),
    )
    rows = [TableRow(seen.operation.operation_id, _ended(seen)) for seen in replays]
    live_table(columns, rows, key="replays-ended", alt="Replays that have ended, the latest first")


def _ended(seen: queries.ReplayRow) -> tuple[Cell, ...]:
    one = seen.operation
    tone, text = told.outcome(one)
    when = wording.stamp(one.finished_at or one.created_at, common.zone(), time.time())
    return (
        TablePart(when.text, href=address(one.operation_id), more=when.more),
        one.who,
        told.selection(seen.where),
        f"{one.total:,}",
        TablePart(text, look=_LOOKS[tone]),
        told.took(one),
    )


_LOOKS: Mapping[str, Any] = {"good": "good", "warning": "warning", "bad": "bad", "quiet": "quiet"}


def acts(rows: Iterable[Mapping[str, Any]], *, of_one: bool = False) -> None:
    """The audit: who did what, to which replay, and when."""
    columns = [Column("When"), Column("Who"), Column("Did what", wide=True), Column("Letters", number=True)]
    if not of_one:
        columns.insert(3, Column("Replay", wide=True))
    drawn = [TableRow(f"{row['acted_at']!r} {row['action']}", _act(row, of_one=of_one)) for row in rows]
    live_table(columns, drawn, key="replays-acts", alt="What people did with replays, the latest first")


def _act(row: Mapping[str, Any], *, of_one: bool) -> tuple[Cell, ...]:
    when = wording.stamp(row["acted_at"], common.zone(), time.time())
    what = told.audit_entry(row["action"], mask_text(row["outcome"]))
    origin = TablePart(f"from the {row['origin']}", look="small")
    cells: list[Cell] = [
        TablePart(when.text, more=when.more),
        [[row["who"]], [origin]],
        [[what.text], [TablePart(what.more, look="small")]] if what.more else what.text,
        f"{row['count']:,}",
    ]
    if not of_one:
        cells.insert(3, _which(row, what.operation_id))
    return tuple(cells)


def _which(row: Mapping[str, Any], operation_id: str) -> Cell:
    about = orjson.loads(row["selection"])
    if "operation" in about:  # an act on a replay that was refused
        return TablePart(about["operation"], href=address(about["operation"]))
    text = told.selection(where_of(row["selection"]))
    return TablePart(text, href=address(operation_id)) if operation_id else text


def reasons(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = (Column("Letters", number=True), Column("What became of them"), Column("Why", wide=True))
    drawn = [
        TableRow(
            f"{row['state']} {row['text']}",
            (
                f"{row['count']:,}",
                told.REASONS[row["state"]],
                mask_text(row["text"] or "no reason given"),
            ),
        )
        for row in rows
    ]
    live_table(columns, drawn, key="replay-reasons", alt="Why dead letters were not delivered")


def doubtful(found: Sequence[Mapping[str, Any]]) -> None:
    """Records of which nobody can say whether they are on their topic, by id."""
    columns = (Column("Message id"), Column("Topic"), Column("Verdict"), Column("Why", wide=True))
    rows = [
        TableRow(
            row["message_id"],
            (
                TablePart(row["message_id"], look="mono", href=letter_address(row["message_id"])),
                row["topic"],
                row["verdict"].replace("_", " "),
                mask_text(row["text"] or ""),
            ),
        )
        for row in found
    ]
    live_table(columns, rows, key="replay-doubtful", alt="Letters that may be on their topic")


def verdicts(run: DryRun, key: str) -> None:
    columns = (
        Column("Verdict"),
        Column("Letters", number=True),
        Column("What is done about them", wide=True),
    )
    sends = run.inconclusive == "send"
    rows = [
        TableRow(
            verdict,
            (
                verdict.replace("_", " "),
                f"{count:,}",
                wording.sentence_case(done_about(verdict, send_inconclusive=sends)),
            ),
        )
        for verdict, count in run.by_verdict.items()
    ]
    live_table(columns, rows, key=f"verdicts-{key}", alt="Letters by verdict")


def topics(run: DryRun, key: str) -> None:
    columns = (
        Column("Topic"),
        Column("Letters", number=True),
        Column("Partition asked for", number=True),
        Column("Partitions", number=True),
        Column("Takes", number=True, more="The largest message that the topic takes."),
        Column("Too large", number=True),
        Column("Newer keys", number=True, more="Letters for whose key a newer record is on the topic."),
    )
    rows = [TableRow(cells[0], cells) for cells in of_a_dry_run(run, most=_TOPICS)]
    live_table(columns, rows, key=f"topics-{key}", alt="Letters by topic")
