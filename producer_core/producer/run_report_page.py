"""Draw the report of a run as one HTML page without scripts, fonts or other files."""

from __future__ import annotations

import html
import platform
import time
from collections.abc import Iterable, Sequence
from typing import Any

from producer_core import __version__
from producer_core._internal.html import text
from producer_core._internal.plural import plural
from producer_core.kafka.classify import failure_of
from producer_core.metrics.histogram import RELATIVE_ERROR, quantiles
from producer_core.producer.run_facts import RunFacts, Sample

_QUANTILES = (0.5, 0.95, 0.99, 0.999)
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 150, 56, 18
_STYLE = """
:root { color-scheme: light dark; --text: #1f2937; --muted: #6b7280; --line: #d1d5db; --sent: #2563eb; --dead: #dc2626;
  --page: #ffffff }
@media (prefers-color-scheme: dark) { :root { --text: #e5e7eb; --muted: #9ca3af; --line: #374151; --sent: #60a5fa;
  --dead: #f87171; --page: #111827 } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--text); background: var(--page); max-width: 760px;
  margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.4rem; margin: 0 } h2 { font-size: 1.05rem; margin: 1.8rem 0 .4rem }
p, small { color: var(--muted); margin: .2rem 0 } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
.n { text-align: right; font-variant-numeric: tabular-nums } .wide { overflow-x: auto }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: .6rem; margin: 1rem 0 }
dt { color: var(--muted); font-size: .85rem } dd { margin: 0; font-size: 1.25rem; font-weight: 600 }
td:last-child:not(.n) { overflow-wrap: anywhere } svg { width: 100%; min-width: 480px; height: auto } svg text { fill: var(--muted); font-size: 11px }
"""


def page(facts: RunFacts) -> str:
    """Return the page. Texts of brokers and settings are escaped and masked."""
    body = (
        f"<h1>{text(_headline(facts))}</h1>{_origin(facts)}{_figures(facts)}{_chart(facts)}{_latency(facts)}"
        f"{_topics(facts)}{_errors(facts)}{_settings(facts)}"
    )
    return (
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>Producer report</title>"
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style></head><body>{body}</body></html>\n"
    )


def _headline(facts: RunFacts) -> str:
    acknowledged, dead = facts.total("acknowledged"), facts.total("dead")
    if not acknowledged and not dead and not facts.pending:
        return "No message was sent."
    parts = [f"{plural(acknowledged, 'message')} acknowledged"]
    parts += [plural(dead, "dead letter")] if dead else []
    parts += [f"{facts.pending:,} still pending"] if facts.pending else []
    return f"{', '.join(parts)} in {_duration(facts.seconds)}."


def _origin(facts: RunFacts) -> str:
    began = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(facts.began_at))
    parts = [f"Began {began}"]
    parts += [f"application {facts.application}"] if facts.application else []
    parts += [f"cluster {facts.cluster_id}"] if facts.cluster_id else []
    lines = [", ".join(parts) + ".", f"producer-core {__version__}, Python {platform.python_version()}."]
    if facts.ended_with:
        lines.append(f"The block ended with {facts.ended_with}.")
    return "".join(f"<p>{text(line)}</p>" for line in lines)


def _figures(facts: RunFacts) -> str:
    acknowledged, dead = facts.total("acknowledged"), facts.total("dead")
    settled = acknowledged + dead
    figures = (
        ("Throughput", f"{acknowledged / facts.seconds:,.0f}/s" if facts.seconds else "–"),
        ("Error rate", f"{100 * dead / settled:.2f}%" if settled else "–"),
        ("Retried", f"{facts.total('retried'):,}"),
        ("Duplicates", f"{facts.total('duplicates'):,}"),
        ("Value bytes", _size(facts.total("bytes"))),
    )
    return f"<dl>{''.join(f'<div><dt>{text(name)}</dt><dd>{text(value)}</dd></div>' for name, value in figures)}</dl>"


def _chart(facts: RunFacts) -> str:
    rates = list(_rates(facts.samples))
    if len(rates) < 2:
        return ""
    top = max(max(sent, dead) for _, sent, dead in rates) or 1.0
    end = rates[-1][0]
    lines = "".join(
        f"<polyline fill='none' stroke='var(--{color})' stroke-width='1.5' points='{_points(rates, column, top, end)}'/>"
        for column, color in ((1, "sent"), (2, "dead"))
    )
    floor = _HEIGHT - _BOTTOM
    return (
        "<h2>Messages per second</h2><p>Acknowledged in blue, dead letters in red.</p>"
        f"<div class='wide'><svg viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='Messages per second'>"
        f"<path d='M{_LEFT} {floor}H{_WIDTH}' stroke='var(--line)'/>"
        f"<text x='0' y='12'>{top:,.4g}</text><text x='0' y='{floor}'>0</text>"
        f"<text x='{_LEFT}' y='{_HEIGHT - 4}'>0 s</text>"
        f"<text x='{_WIDTH}' y='{_HEIGHT - 4}' text-anchor='end'>{html.escape(_duration(end))}</text>{lines}</svg></div>"
    )


def _rates(samples: Sequence[Sample]) -> Iterable[tuple[float, float, float]]:
    """Yield the time and both rates of each interval between two samples."""
    at, acknowledged, dead = 0.0, 0, 0
    for sample in samples:
        if (elapsed := sample.seconds - at) > 0.05:  # the last sample may follow another at once
            yield (
                sample.seconds,
                (sample.acknowledged - acknowledged) / elapsed,
                (sample.dead - dead) / elapsed,
            )
            at, acknowledged, dead = sample


def _points(rates: Sequence[tuple[float, float, float]], column: int, top: float, end: float) -> str:
    floor = _HEIGHT - _BOTTOM
    return " ".join(
        f"{_LEFT + (_WIDTH - _LEFT) * rate[0] / end:.1f},{floor - (floor - 6) * rate[column] / top:.1f}"
        for rate in rates
    )


def _latency(facts: RunFacts) -> str:
    if not facts.latencies:
        return ""
    names = [f"p{100 * quantile:g}" for quantile in _QUANTILES]
    cells = "".join(
        f"<div><dt>{name}</dt><dd>{text(_milliseconds(value))}</dd></div>"
        for name, value in zip(names, quantiles(facts.latencies, _QUANTILES), strict=True)
    )
    note = f"From acceptance to acknowledgement. From merged histograms; the relative error is at most {100 * RELATIVE_ERROR:.1f}%."
    return f"<h2>Latency</h2><p>{text(note)}</p><dl>{cells}</dl>"


def _topics(facts: RunFacts) -> str:
    if not facts.topics:
        return ""
    rows = [
        (
            topic,
            f"{run.acknowledged:,}",
            f"{run.dead:,}",
            f"{run.retried:,}",
            f"{run.duplicates:,}",
            *(_milliseconds(value) for value in quantiles(run.latencies, (0.5, 0.99))),
        )
        for topic, run in sorted(facts.topics.items(), key=lambda item: -item[1].acknowledged)
    ]
    head = ("Topic", "Acknowledged", "Dead letters", "Retried", "Duplicates", "p50", "p99")
    return f"<h2>Topics</h2>{_table(head, rows)}"


def _errors(facts: RunFacts) -> str:
    if not facts.errors:
        return ""
    rows = []
    for (topic, code), count in sorted(facts.errors.items(), key=lambda item: -item[1]):
        failure = failure_of(code)
        rows.append((code, topic, f"{count:,}", f"{failure.meaning} {failure.advice}"))
    return f"<h2>Failed attempts</h2>{_table(('Code', 'Topic', 'Attempts', 'Meaning and advice'), rows, numbers=(2,))}"


def _settings(facts: RunFacts) -> str:
    rows = [(name, str(value)) for name, value in sorted(facts.settings.items())]
    return f"<h2>Settings</h2>{_table(('Setting', 'Value'), rows, numbers=())}" if rows else ""


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]], numbers: Sequence[int] | None = None) -> str:
    right = range(1, len(head)) if numbers is None else numbers
    names = "".join(f"<th{_class(place, right)}>{text(name)}</th>" for place, name in enumerate(head))
    body = "".join(
        f"<tr>{''.join(f'<td{_class(place, right)}>{text(cell)}</td>' for place, cell in enumerate(row))}</tr>"
        for row in rows
    )
    return f"<div class='wide'><table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"


def _class(place: int, right: Sequence[int]) -> str:
    return " class='n'" if place in right else ""


def _milliseconds(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if number < 1024:
            return f"{number:,.4g} {unit}"
        number /= 1024
    return f"{number:,.1f} GiB"
