"""What fails: attempts and messages by code, kind and topic, groups of dead letters, against the same time before."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from producer_core.dashboard.queries.deaths import Deaths, deaths, retry_success
from producer_core.dashboard.queries.error_groups import GroupLine, groups_of
from producer_core.dashboard.queries.view import View
from producer_core.dlq import DeadLetterFilter, DeadLetters
from producer_core.kafka.classify import Failure, failure_of
from producer_core.store import Store

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class MessageOutcome:
    """What became of messages: `attempts` that failed, `saved` messages acknowledged after one, `dead` ones.

    Over time they are by the statistics, of which those of deaths come a moment after the letters.
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
        """Messages that died, of those settled."""
        return _share(self.dead, self.dead + self.acknowledged)


@dataclass(frozen=True)
class CodeLine:
    """One error code. `died` is by the dead letters in this store; `new`: it never came back before the range."""

    failure: Failure
    attempts: int
    attempts_before: int
    died: int
    died_before: int
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
    died: int
    died_before: int


@dataclass(frozen=True)
class TopicLine:
    """One topic; `codes` are its error codes, the most frequent first."""

    topic: str
    now: MessageOutcome
    before: MessageOutcome
    codes: tuple[str, ...]


@dataclass(frozen=True)
class ErrorWindow:
    """One window of the range."""

    at: int
    seconds: int
    fate: MessageOutcome


@dataclass(frozen=True)
class ErrorsPage:
    """Everything the errors page shows, as of `now`: the end of a range that is over.

    `begins`: from when on the store has statistics. `compares`: it has all of the same time before. `judges`: it
    goes back behind the range, so that something can be called new. `unlettered`: deaths of producers whose dead letters are
    not here, but in their own stores. `given_up`: messages that were sent again by us and died, and in the time before.
    `cured` and `aside` are of those that died in the range: replayed since, and put aside.
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
    groups: tuple[GroupLine, ...]
    by_code: Mapping[str, Mapping[int, int]]
    moments: tuple[ErrorWindow, ...]
    waiting: int
    without_dead_letters: int
    given_up: tuple[int, int]
    cured: int
    aside: int
    seen_at: float | None

    @property
    def compares(self) -> bool:
        return self.begins is not None and self.begins <= self.before + self.step

    @property
    def retry_success(self) -> tuple[float | None, float | None]:
        """In the range, and in the time before."""
        now, before = self.given_up
        return retry_success(self.whole.saved, now), retry_success(self.whole_before.saved, before)

    @property
    def judges(self) -> bool:
        return self.begins is not None and self.begins < self.since

    @property
    def news(self) -> tuple[CodeLine, ...]:
        return tuple(line for line in self.codes if line.new)


def errors(store: Store, view: View, now: float) -> ErrorsPage:
    """One consistent look at the store."""
    since, until, step = view.since(now), view.until(now), view.step
    before, _ = view.before(now)
    span = {"before": before, "since": since, "until": until, **view.where}
    inside = {"since": since, "until": until, **view.where}
    with store.borrow():
        begins = store.rows("statistics_begin")[0]["begins"]
        failures = store.rows("failures_by_code", **span)
        fates = store.rows("troubles_by_topic", **span)
        series = store.rows("errors_series", bucket=step, **inside)
        moments = store.rows("troubles_series", bucket=step, **inside)
        known = {row["code"] for row in store.rows("codes_known_before", since=since, topic=view.topic)}
        now_died, before_died = deaths(store, view, since, until), deaths(store, view, before, since)
        dead_letters = _Letters(now_died.by("code"), before_died.by("code"), _waiting(store, view))
        groups = groups_of(store, view, since, until, before) if dead_letters.inside else ()
        seen_at = store.rows("data_age")[0]["seen_at"]
    judges = begins is not None and begins < since
    codes = tuple(_codes(failures, dead_letters, known if judges else None, int(view.at(now))))
    topics = tuple(_topics(fates, failures, now_died, before_died))
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
        groups=tuple(replace(line, new=line.new and judges) for line in groups),
        by_code=_by_code(series),
        moments=tuple(ErrorWindow(row["window_start"], row["seconds"], _fate(row)) for row in moments),
        waiting=sum(dead_letters.waiting.values()),
        without_dead_letters=sum(now_died.without_dead_letters.values()),
        given_up=(now_died.retried, before_died.retried),
        cured=now_died.cured,
        aside=now_died.aside,
        seen_at=seen_at,
    )


# dead letters


@dataclass(frozen=True)
class _Letters:
    """Dead letters by code: of the range, of the same time before, and those that wait now."""

    inside: Mapping[str, int]
    before: Mapping[str, int]
    waiting: Mapping[str, int]


def _waiting(store: Store, view: View) -> Mapping[str, int]:
    return DeadLetters(store).count_by(DeadLetterFilter(topic=view.topic, producer_id=view.producer), "code")


# lines


def _codes(failures: Rows, dead_letters: _Letters, known: set[str] | None, end: int) -> Iterable[CodeLine]:
    """What kills the most messages first; of what kills none, what fails most often. `known`: None where nothing can
    be called new; `end`: of the range, which an hour's row may reach beyond.
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
            died=dead_letters.inside.get(code, 0),
            died_before=dead_letters.before.get(code, 0),
            waiting=dead_letters.waiting.get(code, 0),
            topics=tuple(topic for topic, _ in _ranked(topics[code])),
            last_seen=seen.get(code),
            new=known is not None and code not in known and not dead_letters.before.get(code, 0),
        )
        for code in {*now, *dead_letters.inside}
    ]
    return sorted(lines, key=lambda line: (-line.died, -line.attempts, line.code))


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
            sum(line.died for line in of),
            sum(line.died_before for line in of),
        )
        for kind, of in by_kind.items()
    ]
    return sorted(lines, key=lambda line: (-line.died, -line.attempts, line.kind))


def _topics(fates: Rows, failures: Rows, died: Deaths, before: Deaths) -> Iterable[TopicLine]:
    """The topic that loses the most messages first; what died is what codes and groups count too."""
    now, earlier = dict[str, MessageOutcome](), dict[str, MessageOutcome]()
    for row in fates:
        (now if row["inside"] else earlier)[row["topic"]] = _fate(row)
    for fate, dead in ((now, died.by("topic")), (earlier, before.by("topic"))):
        for topic in {*fate, *dead}:
            fate[topic] = replace(fate.get(topic, MessageOutcome()), dead=dead.get(topic, 0))
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


def _fate(row: Mapping[str, Any]) -> MessageOutcome:
    return MessageOutcome(row["failed_attempts"], row["retry_successes"], row["dead"], row["acknowledged"])


def _ranked(counts: Counter[str]) -> list[tuple[str, int]]:
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
