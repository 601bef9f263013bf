"""Build the overview's headline: the state of delivery now, the next step, and the result of the time range."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from producer_core._internal.plural import plural
from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.situation import Situation
from producer_core.dashboard.wording.numbers import count, short
from producer_core.dashboard.wording.time import age, during
from producer_core.replay.active_cause import QUIET

LOST_AFTER = 40.0
"""Seconds without a heartbeat after which a producer may have crashed."""


_TAB_MARKS = {"bad": "✗", "warning": "▲", "good": "✓", "quiet": "○"}


class HeadlinePart(NamedTuple):
    """A part of a sentence and its link: a page and the page's parameters.

    `button` marks the next step, and `past` a part about the time range, which is not about now.
    """

    text: str
    page: str | None = None
    query: tuple[tuple[str, str | None], ...] = ()
    button: bool = False
    past: bool = False


class Headline(NamedTuple):
    """Holds a tone (good, warning, bad, quiet) and one or two sentences with links."""

    tone: str
    pieces: tuple[HeadlinePart, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)

    @property
    def now(self) -> tuple[HeadlinePart, ...]:
        """Return the state now and the next step; for a range that has ended, everything."""
        return tuple(piece for piece in self.pieces if not piece.past)

    @property
    def past(self) -> tuple[HeadlinePart, ...]:
        """Return what happened in the time range; empty for a range that has ended."""
        return tuple(piece for piece in self.pieces if piece.past)


def sentence(now: Situation) -> tuple[str, str]:
    """Return the tone and the text of the headline, without the next step."""
    found = headline(now)
    return found.tone, "".join(piece.text for piece in found.pieces if not piece.button).rstrip()


def headline(now: Situation, zone: str | None = None) -> Headline:
    """Return the headline: the state of delivery now, or of a range that has ended."""
    if not now.over and now.silent_for is None and not now.closed + now.acknowledged + now.dead:
        return Headline("quiet", (HeadlinePart(_no_producer(now)), *_earlier_dead_letters(now)))
    tone, lead, blocked = _lead(now)
    if blocked:
        lead.append(HeadlinePart(_pending(now.pending)))
    past = () if blocked else (*_failed(now, zone), *_earlier_dead_letters(now))
    past = tuple(piece._replace(past=bool(lead)) for piece in (*past, *_outage(now)))
    return Headline(tone, (*lead, *past, *_lost(now), *_next(now)))


def _no_producer(now: Situation) -> str:
    if now.latest_data_ago is None:
        return "No producer has written to this store yet. Start one to see data here."
    return (
        "No producer of this selection has been seen in the last 24 hours. "
        f"The latest data of the store is {age(now.latest_data_ago)} old. "
    )


def tab_state(now: Situation) -> str:
    """Return the state for the browser's tab, in a few characters; empty where nothing has been sent yet."""
    if now.over or (now.silent_for is None and not now.closed):
        return ""
    tone, *_ = _lead(now)
    mark = _TAB_MARKS[tone]
    if _delivers(now) and now.failing_topics:
        return f"{mark} {short(now.failing_topics[0])}"
    return mark if tone == "good" else f"{mark} {_tab_reason(now)}".rstrip()


def _connecting(now: Situation) -> bool:
    return now.connecting and not now.connected


def _delivers(now: Situation) -> bool:
    """Return whether a producer is connected and messages settle."""
    silent = now.silent_for is not None and now.silent_for > LOST_AFTER
    return bool(now.producers and now.connected and not silent and not now.circuit and not now.stalled)


def _tab_reason(now: Situation) -> str:
    if _delivers(now):
        return f"{count(now.left)} failed" if now.left else "producers"
    if _connecting(now):
        return "connecting"
    return "not delivering" if now.producers or now.gone else "no producers"


def _lead(now: Situation) -> tuple[str, list[HeadlinePart], bool]:
    """Return the tone, the first sentence, and whether pending messages matter more than failed ones."""
    if now.over:
        return _tone(now), [], False
    if now.silent_for is not None and now.silent_for > LOST_AFTER:
        text = f"No heartbeat from any producer for {age(now.silent_for)}; the process may have crashed. "
        return "bad", [HeadlinePart(text)], False
    if not now.producers:
        return "quiet", [HeadlinePart("No producers running. ")], False
    if _connecting(now):
        return "quiet", [HeadlinePart("Connecting to the brokers. ")], bool(now.pending)
    if not now.connected:
        why = f": {now.connection_error}" if now.connection_error else ""
        return "bad", [HeadlinePart(f"Not delivering. No broker connection{why}. ")], True
    if now.circuit:
        return "bad", [HeadlinePart(f"{now.circuit} ")], False
    if now.stalled:
        text = "Not delivering. No message has settled in the last minute. "
        return "bad", [HeadlinePart(text)], True
    return _tone(now), list(_delivery(now)), False


def _delivery(now: Situation) -> Iterator[HeadlinePart]:
    """Return the state of delivery while a broker is connected."""
    if now.failing or now.degraded:
        text = "Failing now" if now.failing else "Delivering, but some messages are failing"
        yield from _failing_on(now, text) if _names_topic(now) else (HeadlinePart(f"{text}. "),)
    else:
        yield HeadlinePart("Delivering again. " if now.recovered else "Delivering. ")


def _names_topic(now: Situation) -> bool:
    """Return whether the first sentence names the topic that is failing now, so that the range's count does not."""
    return not now.over and bool(now.failing_topics)


def _failing_on(now: Situation, text: str) -> Iterator[HeadlinePart]:
    """Return the worst topic that is failing now, and its latest cause."""
    worst, *others = now.failing_topics
    yield HeadlinePart(f"{text} on ")
    yield HeadlinePart(worst, "overview", (("topic", worst),))
    if others:
        yield HeadlinePart(f" and {plural(len(others), 'other topic')}")
    if (latest := _latest(now, worst)) is not None:
        yield HeadlinePart(": ")
        yield HeadlinePart(_meaning(latest), "dead-letters", _group(latest))
    yield HeadlinePart(". ")


def _latest(now: Situation, topic: str) -> Cause | None:
    return max(
        (cause for cause in _open(now) if cause.topic == topic), key=lambda one: one.last, default=None
    )


def _open(now: Situation) -> list[Cause]:
    return [cause for cause in now.causes if cause.left]


def _tone(now: Situation) -> str:
    """Return the tone; failures that were replayed or archived no longer count."""
    if now.failing:
        return "bad"
    troubled = now.left or (not now.over and (now.gone or now.connected < now.producers))
    return "warning" if troubled else "good" if now.acknowledged or not now.over else "quiet"


def _pending(number: int) -> str:
    return f"{plural(number, 'message')} pending."


def _failed(now: Situation, zone: str | None) -> Iterator[HeadlinePart]:
    total, time = now.acknowledged + now.dead, during(now.window, now.since, now.until, zone)
    if not total:
        yield HeadlinePart(f"No messages sent {time}.")
        return
    if not now.dead:
        sent = "The only message sent" if total == 1 else f"All {count(total)} messages sent"
        yield HeadlinePart(f"{sent} {time} {'was' if total == 1 else 'were'} acknowledged.")
        return
    if not now.left:
        yield HeadlinePart(
            f"{'' if now.over else 'Nothing is failing now. '}{count(now.dead)} of {plural(total, 'message')} failed {time}"
        )
        yield from _because(now.causes, now.dead, lambda cause: cause.dead)
        yield HeadlinePart(f"; {_handled(now)}.")
        return
    yield HeadlinePart(f"{count(now.dead)} of {plural(total, 'message')} failed {time}{_partly_handled(now)}")
    if not _names_topic(now):
        yield from _because(_open(now), now.left, lambda cause: cause.left)
    yield HeadlinePart(f".{_ended(now)}")


def _partly_handled(now: Situation) -> str:
    """Return how many failed messages were replayed or archived, and how many are left."""
    parts = [
        f"{count(number)} {verb}"
        for number, verb in ((now.replayed, "replayed since"), (now.archived, "archived"))
        if number
    ]
    return f"; {', '.join(parts)}, {count(now.left)} left" if parts else ""


def _ended(now: Situation) -> str:
    """Return whether the fault is over and the evidence; without deliveries on the failed topics, time alone is none."""
    if now.over or now.failed_ago is None or now.failed_ago < QUIET:
        return ""
    topics = {cause.topic for cause in _open(now)}
    where = f"to {topics.pop()}" if len(topics) == 1 else "to these topics"
    last = f"last failure {age(now.failed_ago)} ago"
    since = f"{plural(now.delivered, 'message')} delivered {where} since"
    if now.recovered:
        return f" Recovered: {last}, {since}."
    if now.delivered:
        return f" {last.capitalize()}; {since}."
    return f" {last.capitalize()}; nothing delivered {where} since, so delivery may still be failing."


def _because(causes: Sequence[Cause], dead: int, number: Callable[[Cause], int]) -> Iterator[HeadlinePart]:
    """Return the share of the first cause and its topic; the table below lists the others."""
    if not causes:
        return
    worst = causes[0]
    before, after = _share(causes, dead, number)
    yield HeadlinePart(before)
    yield HeadlinePart(worst.topic, "overview", (("topic", worst.topic),))
    yield HeadlinePart(after)
    yield HeadlinePart(_meaning(worst), "dead-letters", _group(worst))


def _meaning(cause: Cause) -> str:
    return f"{cause.meaning[:1].lower()}{cause.meaning[1:].rstrip('.')}"


def _handled(now: Situation) -> str:
    """Return how all failed messages were handled."""
    if not now.archived:
        return "replayed since" if now.dead == 1 else f"all {count(now.replayed)} replayed since"
    if not now.replayed:
        return "archived" if now.dead == 1 else f"all {count(now.archived)} archived"
    return f"{count(now.replayed)} replayed since and {count(now.archived)} archived"


def _next(now: Situation) -> Iterator[HeadlinePart]:
    """Return the next step: find the cause while nothing is delivered, else handle the failed messages."""
    open_ = _open(now)
    if _names_topic(now) and (latest := _latest(now, now.failing_topics[0])):
        open_ = [latest]
    if not now.over and now.silent_for is not None and now.silent_for > LOST_AFTER:
        yield HeadlinePart(" ")
        yield HeadlinePart("See the affected producers", "fleet", (("topic", None),), button=True)
    elif not now.over and now.producers and not _connecting(now) and (not now.connected or now.stalled):
        yield HeadlinePart(" ")
        yield HeadlinePart("See causes and fixes", "latency", (("topic", None),), button=True)
    elif now.left and open_:
        yield HeadlinePart(" ")
        yield HeadlinePart("See the dead letters", "dead-letters", _group(open_[0]), button=True)


def _share(causes: Sequence[Cause], dead: int, number: Callable[[Cause], int]) -> tuple[str, str]:
    """Return the share of the first cause, split around the name of its topic."""
    worst = causes[0]
    if len(causes) == 1:
        return ", on " if dead == 1 else ", all on ", ": "
    largest = "most" if 2 * number(worst) > dead else "the largest group"
    if all(cause.topic == worst.topic for cause in causes):
        return ", all on ", f", {largest} ({count(number(worst))}): "
    return f", {largest} ({count(number(worst))}) on ", ": "


def _group(cause: Cause) -> tuple[tuple[str, str | None], ...]:
    """Return the filter for the dead letters of a cause; handled ones are found in any state."""
    query: tuple[tuple[str, str | None], ...] = (("topic", cause.topic),)
    query = (*query, ("group", cause.fingerprint)) if cause.fingerprint else query
    return query if cause.left else (*query, ("state", "any"))


def _earlier_dead_letters(now: Situation) -> Iterator[HeadlinePart]:
    """Return the dead letters that are pending although nothing failed in the range."""
    if now.waiting and not now.left and not now.over:
        pending = f"{plural(now.waiting, 'dead letter')} still pending"
        yield HeadlinePart(" ")
        yield HeadlinePart(pending, "dead-letters", (("range", None), ("since", None)))
        yield HeadlinePart(" from before this range.")


def _outage(now: Situation) -> Iterator[HeadlinePart]:
    """Return the latest broker outage, after it has ended."""
    if now.over or not now.connected or now.cut_off_ago is None:
        return
    since = plural(now.delivered_again, "message") if now.delivered_again else "nothing"
    yield HeadlinePart(
        f" The broker connection was lost for {age(now.cut_off_for)} and restored {age(now.cut_off_ago)} ago; "
        f"{since} delivered since."
    )


def _lost(now: Situation) -> Iterator[HeadlinePart]:
    """Return the producers that stopped reporting or have no broker, while others deliver."""
    known = now.producers + now.gone
    if now.over or not now.producers or not now.connected:
        return
    if now.gone:
        yield HeadlinePart(" ")
        yield HeadlinePart(f"{now.gone} of {plural(known, 'producer')}", "#producers")
        yield HeadlinePart(f" not seen for {age(now.gone_for)}.")
    if now.connected < now.producers:
        cut_off = now.producers - now.connected
        why = f": {now.connection_error}" if now.connection_error else ""
        yield HeadlinePart(
            f" {cut_off} of {plural(now.producers, 'producer')} without a broker connection{why}."
        )


def announcement(found: Headline) -> str:
    """Return the headline without its numbers, so that screen readers announce only changes of state."""
    text = "".join(
        piece.text for piece in found.pieces if piece.page or not any(map(str.isdigit, piece.text))
    )
    text = re.sub(r"[.](?:\s*[.])+", ".", text)  # a sentence that had only a number
    return re.sub(r"(^|[.] )[ ,]+(\w)", lambda found: found[1] + found[2].upper(), text)
