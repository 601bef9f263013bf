"""Queries for the errors page: failures by code, kind, topic and group, compared with the previous period."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from producer_core.dashboard.queries.deaths import (
    FailureCounts,
    failure_counts,
    pending_rows,
    retry_success,
)
from producer_core.dashboard.queries.error_groups import GroupLine, groups_of
from producer_core.dashboard.queries.issues import Issue, issue_rows, issues
from producer_core.dashboard.queries.view import View
from producer_core.kafka.classify import Failure, failure_of
from producer_core.store import Store

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class MessageOutcome:
    """Counts failed `attempts`, messages acknowledged after a failed attempt (`saved`), and failed messages (`dead`).

    Series over time come from the statistics, whose failed messages arrive later than the dead letters.
    """

    attempts: int = 0
    saved: int = 0
    dead: int = 0
    acknowledged: int = 0

    def __add__(self, other: MessageOutcome) -> MessageOutcome:
        return MessageOutcome(
            self.attempts + other.attempts,
            self.saved + other.saved,
            self.dead + other.dead,
            self.acknowledged + other.acknowledged,
        )

    @property
    def error_rate(self) -> float | None:
        """Return the share of settled messages that failed."""
        return _share(self.dead, self.dead + self.acknowledged)


@dataclass(frozen=True)
class CodeLine:
    """Counts one error code; `dead` counts dead letters in this store, `new` marks a code first seen in the range."""

    failure: Failure
    attempts: int
    attempts_before: int
    dead: int
    dead_before: int
    waiting: int
    topics: tuple[str, ...]
    last_seen: int | None
    new: bool

    @property
    def code(self) -> str:
        return self.failure.code


@dataclass(frozen=True)
class KindLine:
    kind: str
    codes: int
    attempts: int
    attempts_before: int
    dead: int
    dead_before: int


@dataclass(frozen=True)
class TopicLine:
    """Counts one topic; `codes` are its error codes, most frequent first."""

    topic: str
    now: MessageOutcome
    before: MessageOutcome
    codes: tuple[str, ...]


@dataclass(frozen=True)
class ErrorWindow:
    """Holds the outcomes in one window of the range."""

    at: int
    seconds: int
    outcome: MessageOutcome


@dataclass(frozen=True)
class ErrorsPage:
    """Holds everything the errors page shows, as of `now`, which is the end of a past range.

    `begins` is the start of the statistics in the store. `compares` is set where they cover the whole previous period,
    and `detects_new` where they reach back before the range, so that codes can be marked as new. `without_dead_letters`
    counts failed messages whose dead letters are in the stores of their producers. `given_up` counts messages that
    failed after a retry, in the range and in the previous period. `replayed` and `archived` count the failed messages
    of the range that were handled since.
    """

    now: float
    window: str
    since: int
    step: int
    begins: int | None
    before: int
    whole: MessageOutcome
    whole_before: MessageOutcome
    codes: tuple[CodeLine, ...]
    kinds: tuple[KindLine, ...]
    topics: tuple[TopicLine, ...]
    issues: tuple[Issue, ...]
    groups: tuple[GroupLine, ...]
    by_code: Mapping[str, Mapping[int, int]]
    moments: tuple[ErrorWindow, ...]
    waiting: int
    without_dead_letters: int
    given_up: tuple[int, int]
    replayed: int
    archived: int
    seen_at: float | None

    @property
    def compares(self) -> bool:
        return self.begins is not None and self.begins <= self.before + self.step

    @property
    def retry_success(self) -> tuple[float | None, float | None]:
        """Return the retry success in the range and in the previous period."""
        now, before = self.given_up
        return retry_success(self.whole.saved, now), retry_success(self.whole_before.saved, before)

    @property
    def detects_new(self) -> bool:
        return self.begins is not None and self.begins < self.since

    @property
    def new_codes(self) -> tuple[CodeLine, ...]:
        return tuple(line for line in self.codes if line.new)


def errors(store: Store, view: View, now: float) -> ErrorsPage:
    """Read the errors page from one consistent view of the store."""
    since, until, step = view.since(now), view.until(now), view.step
    before, _ = view.before(now)
    span = {"before": before, "since": since, "until": until, **view.where}
    inside = {"since": since, "until": until, **view.where}
    with store.borrow():
        begins = store.rows("statistics_begin")[0]["begins"]
        failures = store.rows("failures_by_code", **span)
        by_topic = store.rows("troubles_by_topic", **span)
        series = store.rows("errors_series", bucket=step, **inside)
        moments = store.rows("troubles_series", bucket=step, **inside)
        known = {row["code"] for row in _known_before(store, view, since)}
        failed = failure_counts(store, view, since, until)
        failed_before = failure_counts(store, view, before, since)
        dead_letters = _CodeCounts(failed.by("code"), failed_before.by("code"), _waiting(store, view))
        groups = groups_of(store, view, since, until, before) if dead_letters.inside else ()
        for_issues = issue_rows(store, view, since, until)
        seen_at = store.rows("data_age")[0]["seen_at"]
    detects_new = begins is not None and begins < since
    codes = tuple(_codes(failures, dead_letters, known if detects_new else None, int(view.at(now))))
    topics = tuple(_topics(by_topic, failures, failed, failed_before))
    return ErrorsPage(
        now=view.at(now),
        window=view.window,
        since=since,
        step=step,
        begins=begins,
        before=before,
        whole=sum((line.now for line in topics), MessageOutcome()),
        whole_before=sum((line.before for line in topics), MessageOutcome()),
        codes=codes,
        kinds=tuple(_kinds(codes)),
        topics=tuple(line for line in topics if line.now.attempts or line.now.dead),
        issues=issues(for_issues, failures, failed, failed_before, view, now, detects_new=detects_new),
        groups=tuple(replace(line, new=line.new and detects_new) for line in groups),
        by_code=_by_code(series),
        moments=tuple(ErrorWindow(row["window_start"], row["seconds"], _outcome(row)) for row in moments),
        waiting=sum(dead_letters.waiting.values()),
        without_dead_letters=sum(failed.without_dead_letters.values()),
        given_up=(failed.retried, failed_before.retried),
        replayed=failed.replayed,
        archived=failed.archived,
        seen_at=seen_at,
    )


# dead letters


@dataclass(frozen=True)
class _CodeCounts:
    """Counts dead letters by code: of the range, of the previous period, and those pending now."""

    inside: Mapping[str, int]
    before: Mapping[str, int]
    waiting: Mapping[str, int]


def _waiting(store: Store, view: View) -> Mapping[str, int]:
    counts = Counter[str]()
    for row in pending_rows(store, view):
        counts[row["code"]] += row["count"]
    return counts


def _known_before(store: Store, view: View, since: int) -> Rows:
    return store.rows(
        "codes_known_before",
        since=since,
        topic=view.topic,
        application=view.application,
        cluster=view.cluster,
    )


# lines


def _codes(failures: Rows, dead_letters: _CodeCounts, known: set[str] | None, end: int) -> Iterable[CodeLine]:
    """Return the codes by failed messages, then by failed attempts.

    `known` holds the codes seen before the range, and is None where no code can be marked as new. `end` is the end of
    the range, which an hourly row may exceed.
    """
    now, earlier, topics, seen = (
        Counter[str](),
        Counter[str](),
        defaultdict[str, Counter[str]](Counter),
        dict[str, int](),
    )
    for row in failures:
        (now if row["inside"] else earlier)[row["code"]] += row["count"]
        if row["inside"]:
            topics[row["code"]][row["topic"]] += row["count"]
            seen[row["code"]] = max(seen.get(row["code"], 0), min(row["last_seen"], end))
    lines = [
        CodeLine(
            failure=failure_of(code),
            attempts=now[code],
            attempts_before=earlier[code],
            dead=dead_letters.inside.get(code, 0),
            dead_before=dead_letters.before.get(code, 0),
            waiting=dead_letters.waiting.get(code, 0),
            topics=tuple(topic for topic, _ in _ranked(topics[code])),
            last_seen=seen.get(code),
            new=known is not None and code not in known and not dead_letters.before.get(code, 0),
        )
        for code in {*now, *dead_letters.inside}
    ]
    return sorted(lines, key=lambda line: (-line.dead, -line.attempts, line.code))


def _kinds(codes: Sequence[CodeLine]) -> Iterable[KindLine]:
    by_kind: dict[str, list[CodeLine]] = defaultdict(list)
    for line in codes:
        by_kind[line.failure.kind].append(line)
    lines = [
        KindLine(
            kind,
            len(of),
            sum(line.attempts for line in of),
            sum(line.attempts_before for line in of),
            sum(line.dead for line in of),
            sum(line.dead_before for line in of),
        )
        for kind, of in by_kind.items()
    ]
    return sorted(lines, key=lambda line: (-line.dead, -line.attempts, line.kind))


def _topics(rows: Rows, failures: Rows, failed: FailureCounts, before: FailureCounts) -> Iterable[TopicLine]:
    """Return the topics by failed messages, which are counted as in the codes and groups."""
    now, earlier = dict[str, MessageOutcome](), dict[str, MessageOutcome]()
    for row in rows:
        (now if row["inside"] else earlier)[row["topic"]] = _outcome(row)
    for outcomes, dead in ((now, failed.by("topic")), (earlier, before.by("topic"))):
        for topic in {*outcomes, *dead}:
            outcomes[topic] = replace(outcomes.get(topic, MessageOutcome()), dead=dead.get(topic, 0))
    codes = defaultdict[str, Counter[str]](Counter)
    for row in failures:
        if row["inside"]:
            codes[row["topic"]][row["code"]] += row["count"]
    lines = [
        TopicLine(
            topic,
            now.get(topic, MessageOutcome()),
            earlier.get(topic, MessageOutcome()),
            tuple(code for code, _ in _ranked(codes[topic])),
        )
        for topic in {*now, *earlier}
    ]
    return sorted(lines, key=lambda line: (-line.now.dead, -line.now.attempts, line.topic))


def _by_code(series: Rows) -> Mapping[str, Mapping[int, int]]:
    by_code: dict[str, dict[int, int]] = defaultdict(dict)
    for row in series:
        by_code[row["code"]][row["window_start"]] = row["count"]
    return dict(by_code)


def _outcome(row: Mapping[str, Any]) -> MessageOutcome:
    return MessageOutcome(row["failed_attempts"], row["retry_successes"], row["dead"], row["acknowledged"])


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
