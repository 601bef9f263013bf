"""Draw the tables of replays: finished replays, audit, reasons for records that were not delivered, and dry run."""

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
from producer_core.dashboard.wording import approvals as approval_wording
from producer_core.dashboard.wording import replays as replay_wording
from producer_core.dashboard.wording.dry_run import topics as topic_rows
from producer_core.dashboard.wording.replay_states import state_words
from producer_core.replay.dry_run import DryRun
from producer_core.replay.wording import done_about

_SHOWN_TOPICS = 20


def address(operation_id: str) -> str:
    """Return the URL of a replay's page."""
    return header.link("replays", operation=operation_id)


def dead_letters_address(query: Mapping[str, str]) -> str:
    """Return the URL of the selected dead letters, without the filters of the current page."""
    cleared = dict.fromkeys(("range", "topic", "producer", "application", "cluster"), None)
    return header.link("dead-letters", **{**cleared, **query})


def dead_letter_address(message_id: str) -> str:
    """Return the URL of one dead letter's details, in any state."""
    return dead_letters_address({"message_id": message_id, "state": "any", "letter": message_id})


def state(row: queries.ReplayRow, now: float) -> tuple[str, str]:
    """Return the tone of a replay and its state in one or two words."""
    operation = row.operation
    tone, _ = replay_wording.replay_status(
        operation, owner=row.owner, runners=row.runners, now=now, blocked_by=row.blocked_by
    )
    if operation.state == "ready" and row.request is not None and row.request.is_open:
        return tone, approval_wording.words(row.request)
    return tone, state_words(operation, now=now, runners=row.runners, queued=row.blocked_by is not None)


def ended(replays: Sequence[queries.ReplayRow], now: float) -> None:
    columns = (
        Column("Finished"),
        Column("State"),
        Column("Selection", wide=True),
        Column("Records", number=True),
        Column("Succeeded", number=True, tooltip="Acknowledged by the broker, or found on the topic."),
        Column("Failed", number=True, tooltip="Failed again; they remain dead letters."),
        Column("Skipped", number=True, tooltip="Not sent; the replay's page has the reasons."),
        Column("Duration", number=True, tooltip="From start to end, including pauses."),
        Column("User"),
    )
    rows = [TableRow(row.operation.operation_id, _ended(row, now)) for row in replays]
    live_table(columns, rows, key="replays-ended", alt="Finished replays, latest first")


def _ended(row: queries.ReplayRow, now: float) -> tuple[Cell, ...]:
    operation = row.operation
    tone, words = state(row, now)
    when = wording.stamp(operation.finished_at or operation.created_at, common.zone(), time.time())
    return (
        TablePart(when.text, href=address(operation.operation_id), tooltip=when.more),
        TablePart(words, style=_STYLES[tone], tooltip=replay_wording.outcome(operation)[1]),
        replay_wording.selection(row.where),
        f"{operation.total:,}",
        _number(operation.acknowledged + operation.landed),
        _number(operation.failed_again),
        _number(operation.skipped),
        replay_wording.took(operation),
        operation.who,
    )


def _number(count: int) -> Cell:
    return f"{count:,}" if count else TablePart("–", style="small")


_STYLES: Mapping[str, Any] = {"good": "good", "warning": "warning", "bad": "bad", "quiet": "quiet"}


def audit(rows: Iterable[Mapping[str, Any]], *, of_one: bool = False) -> None:
    """Draw the audit of actions on replays; with `of_one` without the column that identifies the replay."""
    columns = [Column("Time"), Column("User"), Column("Action", wide=True), Column("Records", number=True)]
    if not of_one:
        columns.insert(3, Column("Replay", wide=True))
    lines = [
        TableRow(f"{row['acted_at']!r} {row['action']}", _audit_entry(row, of_one=of_one)) for row in rows
    ]
    live_table(columns, lines, key="replays-audit", alt="Audit of replays, latest first")


def _audit_entry(row: Mapping[str, Any], *, of_one: bool) -> tuple[Cell, ...]:
    when = wording.stamp(row["acted_at"], common.zone(), time.time())
    action = replay_wording.audit_entry(row["action"], mask_text(row["outcome"]))
    origin = TablePart(f"origin: {row['origin']}", style="small")
    cells: list[Cell] = [
        TablePart(when.text, tooltip=when.more),
        [[row["who"]], [origin]],
        [[action.text], [TablePart(action.more, style="small")]] if action.more else action.text,
        f"{row['count']:,}",
    ]
    if not of_one:
        cells.insert(3, _replay(row, action.operation_id))
    return tuple(cells)


def _replay(row: Mapping[str, Any], operation_id: str) -> Cell:
    selection = orjson.loads(row["selection"])
    if "operation" in selection:  # a refused action on a replay
        return TablePart(selection["operation"], href=address(selection["operation"]))
    text = replay_wording.selection(where_of(row["selection"]))
    return TablePart(text, href=address(operation_id)) if operation_id else text


def reasons(rows: Sequence[Mapping[str, Any]]) -> None:
    columns = (Column("Records", number=True), Column("Outcome"), Column("Reason", wide=True))
    lines = [
        TableRow(
            f"{row['state']} {row['text']}",
            (
                f"{row['count']:,}",
                replay_wording.REASONS[row["state"]],
                mask_text(row["text"] or "no reason given"),
            ),
        )
        for row in rows
    ]
    live_table(columns, lines, key="replay-reasons", alt="Reasons for records that were not delivered")


def uncertain(rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the records for which it is unknown whether they are on their topic."""
    columns = (Column("Message id"), Column("Topic"), Column("Verdict"), Column("Reason", wide=True))
    lines = [
        TableRow(
            row["message_id"],
            (
                TablePart(row["message_id"], style="mono", href=dead_letter_address(row["message_id"])),
                row["topic"],
                row["verdict"].replace("_", " "),
                mask_text(row["text"] or ""),
            ),
        )
        for row in rows
    ]
    live_table(columns, lines, key="replay-uncertain", alt="Records that may be on their topic")


def verdicts(run: DryRun, key: str) -> None:
    columns = (
        Column("Verdict"),
        Column("Records", number=True),
        Column("Action", wide=True),
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
    live_table(columns, rows, key=f"verdicts-{key}", alt="Records by verdict")


def topics(run: DryRun, key: str) -> None:
    columns = (
        Column("Topic"),
        Column("Records", number=True),
        Column("Requested partition", number=True),
        Column("Partitions", number=True),
        Column("Maximum size", number=True, tooltip="The largest message that the topic accepts."),
        Column("Too large", number=True),
        Column(
            "Keys with newer records",
            number=True,
            tooltip="Records whose key has a newer record on the topic.",
        ),
    )
    rows = [TableRow(cells[0], cells) for cells in topic_rows(run, most=_SHOWN_TOPICS)]
    live_table(columns, rows, key=f"topics-{key}", alt="Records by topic")
