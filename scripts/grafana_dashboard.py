"""Write deploy/grafana/producer.json: a Grafana dashboard of the metrics of producer_core.

    python scripts/grafana_dashboard.py            # writes the file
    python scripts/grafana_dashboard.py --check    # exit code 1 if the file is out of date

The dashboard is plain JSON of Grafana 10 and later. Only the tests need grafana-foundation-sdk, whose types validate it:
its versions are ordered by epoch, so that an upgrade installs the types of the oldest Grafana.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parents[1] / "deploy" / "grafana" / "producer.json"
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_TOPIC = "messaging_destination_name"
_ALL = 'job=~"$job", instance=~"$instance"'
_OF_TOPICS = f'{_ALL}, {_TOPIC}=~"$topic"'
_RATE = "[$__rate_interval]"
_SENT = "messaging_client_sent_messages_total"
_DEAD = "producer_core_dead_letters_total"
_LATENCY = "messaging_client_operation_duration_seconds"
_WIDTH = 24


class Query(NamedTuple):
    """An expression, and the legend of its series."""

    expression: str
    legend: str = "__auto"


class Panel(NamedTuple):
    """A panel: its title, its queries, its unit in Grafana's words, and a sentence that explains it."""

    title: str
    queries: Sequence[Query]
    unit: str
    description: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8


def _rate(metric: str, by: str, labels: str = _OF_TOPICS) -> str:
    return f"sum by ({by}) (rate({metric}{{{labels}}}{_RATE}))"


def _sum(metric: str, labels: str = _ALL) -> str:
    return f"sum({metric}{{{labels}}})"


def _mean(metric: str, legend: str) -> Query:
    return Query(
        f"{_rate(f'{metric}_sum', 'broker', _ALL)} / {_rate(f'{metric}_count', 'broker', _ALL)}", legend
    )


def _share(window: str) -> str:
    dead, sent = (f"sum(increase({name}{{{_OF_TOPICS}}}[{window}]))" for name in (_DEAD, _SENT))
    return f"{dead} / ({dead} + {sent})"


def _quantile(quantile: float) -> Query:
    buckets = f"sum by (le) (rate({_LATENCY}_bucket{{{_OF_TOPICS}}}{_RATE}))"
    return Query(f"histogram_quantile({quantile}, {buckets})", f"p{quantile * 100:g}")


def _stat(title: str, query: str, unit: str = "short", description: str = "") -> Panel:
    return Panel(title, [Query(query)], unit, description, kind="stat", width=4, height=4)


ROWS: Mapping[str, Sequence[Panel]] = {
    "Delivery": (
        _stat("Acknowledged", f"sum(rate({_SENT}{{{_OF_TOPICS}}}{_RATE}))", "cps", "Messages per second."),
        _stat("Failed in 1 h", _share("1h"), "percentunit", "Share of messages that became dead letters."),
        _stat(
            "Pending",
            _sum("producer_core_pending_messages"),
            description="Messages accepted and not settled.",
        ),
        _stat(
            "Pending dead letters",
            _sum("producer_core_stored_dead_letters", f'{_OF_TOPICS}, state="dead"'),
            description="Dead letters that are neither replayed nor archived.",
        ),
        _stat("Connected producers", _sum("producer_core_connected_producers")),
        _stat("Firing alerts", f"{_sum('producer_core_firing_alerts')} or vector(0)"),
        Panel("Acknowledged by topic", [Query(_rate(_SENT, _TOPIC), f"{{{{{_TOPIC}}}}}")], "cps"),
        Panel(
            "Bytes by topic",
            [Query(_rate("producer_core_sent_bytes_total", _TOPIC), f"{{{{{_TOPIC}}}}}")],
            "Bps",
        ),
        Panel(
            "Latency",
            [_quantile(quantile) for quantile in (0.5, 0.95, 0.99)],
            "s",
            "From produce to acknowledgement. Percentiles come from summed buckets; above 10 s they show 10 s.",
        ),
        Panel(
            "Latency distribution",
            [Query(f"sum by (le) (increase({_LATENCY}_bucket{{{_OF_TOPICS}}}{_RATE}))", "{{le}}")],
            "s",
            kind="heatmap",
            width=12,
        ),
        Panel(
            "Error budget",
            [Query(f"{_share(window)} / 0.001", window) for window in ("5m", "1h", "6h")],
            "short",
            "Speed at which the budget of 0.1% is used; 1 uses the whole budget within the month. "
            "The alerts fire at 14.4 (1h and 5m) and 6 (6h and 30m).",
            width=12,
        ),
    ),
    "Failures": (
        Panel(
            "Failed attempts by error",
            [Query(_rate("producer_core_failed_attempts_total", "error_type"), "{{error_type}}")],
            "cps",
        ),
        Panel(
            "Retries",
            [
                Query(f"sum(rate(producer_core_retries_total{{{_OF_TOPICS}}}{_RATE}))", "retries"),
                Query(f"sum(rate(producer_core_retry_successes_total{{{_OF_TOPICS}}}{_RATE}))", "successes"),
            ],
            "cps",
        ),
        Panel("New dead letters by topic", [Query(_rate(_DEAD, _TOPIC), f"{{{{{_TOPIC}}}}}")], "cps"),
        Panel(
            "Dead letters in the store",
            [
                Query(
                    f"sum by (state, error_type, verdict) (producer_core_stored_dead_letters{{{_OF_TOPICS}}})",
                    "{{state}} {{error_type}} {{verdict}}",
                )
            ],
            "short",
        ),
        Panel(
            "Age of the oldest pending dead letter",
            [
                Query(
                    f"time() - min by ({_TOPIC}) (producer_core_oldest_dead_letter_timestamp_seconds{{{_OF_TOPICS}}})",
                    f"{{{{{_TOPIC}}}}}",
                )
            ],
            "s",
        ),
        Panel(
            "Duplicates",
            [
                Query(
                    f"sum(rate(producer_core_duplicates_suppressed_total{{{_OF_TOPICS}}}{_RATE}))",
                    "suppressed",
                ),
                Query(
                    f"sum(rate(producer_core_possible_duplicates_total{{{_OF_TOPICS}}}{_RATE}))", "possible"
                ),
            ],
            "cps",
        ),
    ),
    "Kafka client": (
        Panel(
            "Messages waiting",
            [
                Query(_sum("producer_core_pending_messages"), "pending"),
                Query(_sum("producer_core_waiting_retry_messages"), "waiting for a retry"),
                Query(_sum("producer_core_client_queue_messages"), "in librdkafka's queue"),
            ],
            "short",
        ),
        Panel(
            "Queue fill",
            [
                Query(
                    f"{_sum('producer_core_client_queue_messages')} / {_sum('producer_core_client_queue_limit_messages')}",
                    "fill",
                )
            ],
            "percentunit",
        ),
        Panel(
            "Messages per batch",
            [
                Query(
                    f"sum(rate(producer_core_client_batch_messages_total{{{_ALL}}}{_RATE}))"
                    f" / sum(rate(producer_core_client_batches_total{{{_ALL}}}{_RATE}))",
                    "messages",
                )
            ],
            "short",
        ),
        Panel("Broker response time", [_mean("producer_core_broker_round_trip_seconds", "{{broker}}")], "s"),
        Panel(
            "Time in the client's queues",
            [
                _mean("producer_core_broker_queue_seconds", "{{broker}} queue"),
                _mean("producer_core_broker_send_queue_seconds", "{{broker}} send queue"),
            ],
            "s",
        ),
        Panel(
            "Throttling",
            [Query(_rate("producer_core_broker_throttle_seconds_sum", "broker", _ALL), "{{broker}}")],
            "s",
            "Seconds per second by which the broker throttled responses.",
        ),
        Panel(
            "Requests",
            [Query(_rate("producer_core_broker_requests_total", "broker", _ALL), "{{broker}}")],
            "cps",
        ),
        Panel(
            "Request faults",
            [
                Query(
                    _rate("producer_core_broker_request_retries_total", "broker", _ALL), "{{broker}} retries"
                ),
                Query(
                    _rate("producer_core_broker_request_timeouts_total", "broker", _ALL),
                    "{{broker}} timeouts",
                ),
                Query(
                    _rate("producer_core_broker_disconnects_total", "broker", _ALL), "{{broker}} disconnects"
                ),
            ],
            "cps",
        ),
        Panel(
            "New producer epochs",
            [Query(f"sum(increase(producer_core_client_epoch_rises_total{{{_ALL}}}{_RATE}))", "epochs")],
            "short",
            "Each one follows an internal error of the idempotent producer.",
        ),
    ),
    "Store and processes": (
        Panel(
            "Firing alerts",
            [
                Query(
                    f"sum by (alert, severity) (producer_core_firing_alerts{{{_ALL}}})",
                    "{{alert}} ({{severity}})",
                )
            ],
            "short",
        ),
        Panel(
            "Producers",
            [
                Query(_sum("producer_core_producers"), "running"),
                Query(_sum("producer_core_connected_producers"), "connected"),
                Query(
                    f'sum by (application) (producer_core_application_producers{{{_ALL}, application!=""}})',
                    "{{application}}",
                ),
            ],
            "short",
        ),
        Panel(
            "Circuit breakers",
            [
                Query(
                    f'sum by ({_TOPIC}, state) (producer_core_circuits{{{_ALL}, state!="closed"}}) > 0',
                    f"{{{{state}}}} {{{{{_TOPIC}}}}}",
                ),
                Query(_rate("producer_core_refused_messages_total", _TOPIC), f"refused/s {{{{{_TOPIC}}}}}"),
                Query(f"sum(increase(producer_core_circuit_openings_total{{{_ALL}}}{_RATE}))", "openings"),
            ],
            "short",
            "Metrics of a process. A state without a topic is that of the cluster's circuit.",
        ),
        Panel(
            "Last heartbeat",
            [
                Query(
                    f"time() - max by (instance) (producer_core_last_heartbeat_timestamp_seconds{{{_ALL}}})",
                    "{{instance}}",
                )
            ],
            "s",
        ),
        Panel(
            "Alert evaluation",
            [Query(f"min by (instance) (producer_core_alert_evaluation{{{_ALL}}})", "{{instance}}")],
            "short",
            "1 while a process evaluates the alerts of the store.",
        ),
        Panel(
            "Bytes on disk",
            [
                Query(f"sum by (instance) (producer_core_store_bytes{{{_ALL}}})", "store {{instance}}"),
                Query(f"sum by (instance) (producer_core_journal_bytes{{{_ALL}}})", "journal {{instance}}"),
            ],
            "bytes",
            "Journals are metrics of a process, not of a store.",
        ),
        Panel(
            "Journal and deduplication",
            [
                Query(
                    f"sum by (instance) (producer_core_journal_messages{{{_ALL}}})", "journaled {{instance}}"
                ),
                Query(
                    f"max by (instance) (producer_core_deduplication_degraded{{{_ALL}}})",
                    "degraded {{instance}}",
                ),
            ],
            "short",
            "Only metrics of a process have them.",
        ),
    ),
}


def dashboard() -> str:
    """Return the text of the file."""
    found = {
        "title": "producer_core",
        "uid": "producer-core",
        "description": "Producers of producer_core. Generated by scripts/grafana_dashboard.py.",
        "tags": ["kafka", "producer_core"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_data_source(), *map(_variable, ("job", "instance", "topic"))]},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }
    return json.dumps(found, indent=2) + "\n"


def _data_source() -> Mapping[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _variable(name: str) -> Mapping[str, Any]:
    queries = {
        "job": "label_values(producer_core_build_info, job)",
        "instance": 'label_values(producer_core_build_info{job=~"$job"}, instance)',
        "topic": f"label_values({_SENT}{{{_ALL}}}, {_TOPIC})",
    }
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": queries[name], "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> Iterator[Mapping[str, Any]]:
    """Lay the panels out from left to right, below the heading of their row."""
    ids, top = count(1), 0
    for title, panels in ROWS.items():
        yield _placed(
            {"type": "row", "title": title, "collapsed": False, "panels": []}, next(ids), 0, top, _WIDTH, 1
        )
        left, top, height = 0, top + 1, 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                left, top, height = 0, top + height, 0
            yield _placed(_panel(panel), next(ids), left, top, panel.width, panel.height)
            left, height = left + panel.width, max(height, panel.height)
        top += height


def _placed(
    panel: Mapping[str, Any], number: int, left: int, top: int, width: int, height: int
) -> Mapping[str, Any]:
    return {"id": number, **panel, "gridPos": {"x": left, "y": top, "w": width, "h": height}}


def _panel(panel: Panel) -> Mapping[str, Any]:
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "targets": [_target(panel, place, query) for place, query in enumerate(panel.queries)],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": _OPTIONS[panel.kind],
    }


def _target(panel: Panel, place: int, query: Query) -> Mapping[str, Any]:
    return {
        "refId": "ABCDEFGH"[place],
        "datasource": _SOURCE,
        "expr": query.expression,
        "legendFormat": query.legend,
        "format": "heatmap" if panel.kind == "heatmap" else "time_series",
        "range": panel.kind != "stat",
        "instant": panel.kind == "stat",
    }


_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "stat": {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "none"},
    "timeseries": {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    },
    "heatmap": {"calculate": False, "yAxis": {"unit": "s"}, "color": {"mode": "scheme", "scheme": "Blues"}},
}


def main() -> None:
    if "--check" in sys.argv[1:]:
        sys.exit(
            0
            if FILE.read_text() == dashboard()
            else f"{FILE.name} is out of date: run {Path(__file__).name}."
        )
    FILE.write_text(dashboard())


if __name__ == "__main__":
    main()
