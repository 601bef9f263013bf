"""Render the page of a bundle: one HTML file without script, links or other files, with all text escaped and masked."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from producer_core import __version__
from producer_core._internal.html import LISTED, page
from producer_core.diagnostics.incident import chart, decisions_page
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.classify import failure_of
from producer_core.metrics.histogram import quantiles

if TYPE_CHECKING:
    from producer_core.diagnostics.doctor.finding import DoctorFinding
    from producer_core.diagnostics.incident.window import IncidentWindow
    from producer_core.store import Store

_QUANTILES = (0.5, 0.95, 0.99)
_MANY = 10_000
_STYLE = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1a1a1a;"
    "background:#fff}h1{font-size:1.5rem}table{border-collapse:collapse;margin:.3rem 0}"
    "td,th{padding:.2rem 1.2rem .2rem 0;font-variant-numeric:tabular-nums}th{color:#555;font-weight:600}"
    "body>div{margin:1.6rem 0}@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#141414}th{color:#aaa}}"
)
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(
    store: Store, window: IncidentWindow, findings: Sequence[DoctorFinding], *, now: float, masked: bool
) -> str:
    """Return the page of a bundle from its store."""
    title = f"Incident {decisions_page.moment(window.since)} to {decisions_page.moment(window.until)} UTC"
    with store.borrow(limit=60):
        sections = [
            *_delivery(store, window),
            _dead_letters(store, window),
            *decisions_page.sections(store, window),
            *_events(store),
            _producers(store),
            _actions(store),
        ]
    doctor = page(
        "Doctor, at the time of the export",
        columns=("check", "level", "finding", "fix"),
        rows=[(one.check, one.level, one.text, one.fix) for one in findings],
        lines=() if findings else ("No checks were run.",),
    )
    about = page(
        "About this bundle",
        lines=(
            f"Exported at {decisions_page.moment(now)} UTC by producer-core {__version__}. Statistics cover the range; the state of "
            "dead letters, alerts and replays is that of the export.",
            "Masked: its dead letters cannot be replayed."
            if masked
            else "Raw: the other files of this bundle have unmasked keys, values and headers. This page is masked.",
            "Live pages on this data: producer-core dashboard --bundle FILE.zip",
        ),
    )
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    body = "\n".join((f"<h1>{html.escape(title)}</h1>", about, *sections, doctor))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _delivery(store: Store, window: IncidentWindow) -> Iterator[str]:
    span = {"since": int(window.since), "until": int(window.until)}
    totals = store.rows("totals", **span)[0]
    buckets = {row["bucket"]: row["count"] for row in store.rows("latency_buckets", **span)}
    names = ("accepted", "acknowledged", "dead", "failed_attempts", "retried", "duplicates")
    yield page(
        "Messages",
        facts=[
            *((name.replace("_", " "), totals[name]) for name in names),
            *zip(("p50", "p95", "p99"), map(_milliseconds, quantiles(buckets, _QUANTILES)), strict=True),
        ],
    )
    step = chart.bar_seconds(window.seconds)
    series = store.rows("series", bucket=step, **span)
    yield f"<div>{chart.bars(series, window.since, window.until, step)}</div>"
    topics = store.rows("totals_by_topic", **span)
    yield page(
        "By topic",
        columns=("topic", "acknowledged", "dead", "failed attempts", "retried"),
        rows=[
            (row["topic"], row["acknowledged"], row["dead"], row["failed_attempts"], row["retried"])
            for row in sorted(topics, key=lambda row: (-row["dead"], -row["failed_attempts"], row["topic"]))
        ],
    )
    codes = Counter[str]()
    for row in store.rows("errors_series", bucket=3600, **span):
        codes[row["code"]] += row["count"]
    yield page(
        "Failed attempts by error code",
        columns=("code", "attempts", "meaning"),
        rows=[(code, count, failure_of(code).meaning) for code, count in codes.most_common()],
        lines=() if codes else ("No attempt failed.",),
    )


def _dead_letters(store: Store, window: IncidentWindow) -> str:
    where = DeadLetterFilter(state=None, since=window.since, until=window.until)
    dead_letters = DeadLetters(store)
    groups, states = dead_letters.groups(where, limit=LISTED), dead_letters.count_by(where, "state")
    rest = sum(states.values()) - sum(group.count for group in groups)
    return page(
        "Dead letters by cause",
        facts=[(state, number) for state, number in states.items()],
        columns=("dead letters", "code", "topics", "error", "first", "last", "meaning and advice"),
        rows=[
            (
                *(group.count, group.code, ", ".join(group.topics), group.sample_text),
                *(
                    decisions_page.moment(group.first_seen),
                    decisions_page.moment(group.last_seen),
                    f"{group.meaning} {group.advice}",
                ),
            )
            for group in groups
        ],
        lines=("No message became a dead letter.",) if not groups else _others(rest),
    )


def _others(number: int) -> tuple[str, ...]:
    return (f"{number:,} dead letters in other groups.",) if number else ()


def _events(store: Store) -> Iterator[str]:
    alerts = store.rows("alerts_list", now=0.0, limit=_MANY)
    yield page(
        "Alerts",
        columns=("severity", "rule", "subject", "state", "started", "resolved", "acknowledged by", "text"),
        rows=[
            (
                *(
                    row["severity"],
                    row["rule"],
                    row["subject"],
                    row["state"],
                    decisions_page.moment(row["started_at"]),
                ),
                *(decisions_page.moment(row["resolved_at"]), row["acknowledged_by"] or "", row["text"]),
            )
            for row in sorted(alerts, key=lambda row: row["started_at"])
        ],
        lines=() if alerts else ("No alert.",),
    )
    replays = store.rows("operations", limit=_MANY)
    yield page(
        "Replays",
        columns=(
            "replay",
            "state",
            "operator",
            "created",
            "records",
            "acknowledged",
            "found",
            "failed again",
        ),
        rows=[
            (
                *(row["operation_id"], row["state"], row["who"], decisions_page.moment(row["created_at"])),
                *(row["total"], row["acknowledged"], row["landed"], row["failed_again"]),
            )
            for row in replays
        ],
        lines=() if replays else ("No replay.",),
    )


def _producers(store: Store) -> str:
    producers = store.rows("producers")
    return page(
        "Producers",
        columns=(
            "client",
            "application",
            "host",
            "process",
            "version",
            "cluster",
            "started",
            "last seen",
            "closed",
        ),
        rows=[
            (
                *(row["client_id"], row["application"] or "", row["host"], str(row["pid"]), row["version"]),
                row["cluster_id"],
                *(decisions_page.moment(row[name]) for name in ("started_at", "seen_at", "closed_at")),
            )
            for row in producers
        ],
        lines=() if producers else ("No producer.",),
    )


def _actions(store: Store) -> str:
    actions = store.rows("audit_latest", limit=_MANY)
    return page(
        "Operator actions",
        columns=("when (UTC)", "operator", "origin", "action", "records", "outcome"),
        rows=[
            (
                *(decisions_page.moment(row["acted_at"]), row["who"], row["origin"], row["action"]),
                *(row["count"], row["outcome"]),
            )
            for row in reversed(actions)
        ],
        lines=() if actions else ("No action.",),
    )


def _milliseconds(seconds: Any) -> str:
    return "-" if seconds is None else f"{seconds * 1000:,.1f} ms"
