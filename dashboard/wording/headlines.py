"""The lead of the overview: how delivery goes, in one sentence or two, with what one would do next."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from producer_core.dashboard.queries.cause import Cause
from producer_core.dashboard.queries.situation import Situation
from producer_core.dashboard.wording.numbers import count, plural
from producer_core.dashboard.wording.time import age, during
from producer_core.replay.active_cause import QUIET

DEAD = 40.0
"""Seconds without a word after which a producer may have died."""


class HeadlinePart(NamedTuple):
    """A part of a sentence, and where it leads: a page and what to look at there; `button` is what one would do next."""

    text: str
    page: str | None = None
    query: tuple[tuple[str, str | None], ...] = ()
    button: bool = False


class Headline(NamedTuple):
    """How things stand: a tone (good, warning, bad, quiet) and a sentence or two with links in it."""

    tone: str
    pieces: tuple[HeadlinePart, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def sentence(now: Situation) -> tuple[str, str]:
    """The headline as text alone."""
    found = headline(now)
    return found.tone, "".join(piece.text for piece in found.pieces if not piece.button).rstrip()


def headline(now: Situation, zone: str | None = None) -> Headline:
    """How delivery goes; of a range that is over how it went."""
    if not now.over and now.silent_for is None and not now.closed + now.acknowledged + now.dead:
        nobody = "No producer has written here yet. Start one on this store and this page comes to life."
        return Headline("quiet", (HeadlinePart(nobody), *_waiting(now)))
    tone, pieces, waits = _lead(now)
    pieces += [HeadlinePart(_waits(now.pending))] if waits else [*_failed(now, zone), *_waiting(now)]
    return Headline(tone, (*pieces, *_outage(now), *_lost(now), *_next(now)))


def _lead(now: Situation) -> tuple[str, list[HeadlinePart], bool]:
    """The tone, the first sentence, and whether what waits matters more than what failed."""
    if now.over:
        return _tone(now), [], False
    if now.silent_for is not None and now.silent_for > DEAD:
        text = f"No producer has been seen for {age(now.silent_for)}: it may have died. "
        return "bad", [HeadlinePart(text)], False
    if not now.producers:
        return "quiet", [HeadlinePart("No producer is running. ")], False
    if not now.connected:
        why = f": {now.connection_error}" if now.connection_error else ""
        return "bad", [HeadlinePart(f"Not delivering. No broker is connected{why}. ")], True
    if now.stalled:
        text = "Not delivering. Nothing was acknowledged or given up for a minute. "
        return "bad", [HeadlinePart(text)], True
    return _tone(now), list(_goes(now)), False


def _goes(now: Situation) -> Iterator[HeadlinePart]:
    """How it goes where a broker is there."""
    if now.failing or now.dying:
        text = "Failing now" if now.failing else "Delivering, but some fail"
        yield from _failing_on(now, text) if _several_failed(now) else (HeadlinePart(f"{text}. "),)
    else:
        yield HeadlinePart("Delivering again. " if now.recovered else "Delivering. ")


def _several_failed(now: Situation) -> bool:
    """Return whether several topics failed in the range, so that its counts do not say which one fails now."""
    failed = {cause.topic for cause in _open(now)}
    return not now.over and bool(now.failing_topics) and len(failed.union(now.failing_topics)) > 1


def _failing_on(now: Situation, text: str) -> Iterator[HeadlinePart]:
    """Name the worst topic that fails now, and its latest cause."""
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
    """How bad it is now; what failed and was dealt with is not bad any more."""
    if now.failing:
        return "bad"
    troubled = now.left or (not now.over and (now.gone or now.connected < now.producers))
    return "warning" if troubled else "good" if now.acknowledged or not now.over else "quiet"


def _waits(pending: int) -> str:
    return "1 message waits." if pending == 1 else f"{pending:,} messages wait."


def _failed(now: Situation, zone: str | None) -> Iterator[HeadlinePart]:
    total, time = now.acknowledged + now.dead, during(now.window, now.since, now.until, zone)
    if not total:
        yield HeadlinePart(f"Nothing was sent {time}.")
        return
    if not now.dead:
        said = "The one message sent" if total == 1 else f"All {count(total)} messages sent"
        yield HeadlinePart(f"{said} {time} {'was' if total == 1 else 'were'} acknowledged.")
        return
    if not now.left:
        yield HeadlinePart(
            f"{'' if now.over else 'Nothing fails now. '}{count(now.dead)} of {plural(total, 'message')} failed {time}"
        )
        yield from _because(now.causes, now.dead, lambda cause: cause.dead)
        yield HeadlinePart(f"; {_dealt_with(now)}.")
        return
    yield HeadlinePart(f"{count(now.dead)} of {plural(total, 'message')} failed {time}{_rest(now)}")
    if not _several_failed(now):
        yield from _because(_open(now), now.left, lambda cause: cause.left)
    yield HeadlinePart(f".{_ended(now)}")


def _rest(now: Situation) -> str:
    """What became of a part of them, and how many are left."""
    parts = [
        f"{count(number)} {_were(number)} {what}"
        for number, what in ((now.cured, "replayed since"), (now.aside, "put aside"))
        if number
    ]
    are = "is" if now.left == 1 else "are"
    return f"; {', '.join(parts)}, {count(now.left)} {are} left" if parts else ""


def _ended(now: Situation) -> str:
    """Whether the fault is over, and what says so: time alone does not, while nothing is delivered where it failed."""
    if now.over or now.failed_ago is None or now.failed_ago < QUIET:
        return ""
    topics = {cause.topic for cause in _open(now)}
    where = f"on {topics.pop()}" if len(topics) == 1 else "on these topics"
    last, since = f"the last failure was {age(now.failed_ago)} ago", plural(now.delivered, "message")
    if now.recovered:
        return f" It is over: {last}, and {since} {_were(now.delivered)} delivered {where} since."
    if now.delivered:
        return f" {last.capitalize()}; {since} {_were(now.delivered)} delivered {where} since."
    return f" {last.capitalize()}, and nothing was delivered {where} since: it may fail still."


def _because(causes: Sequence[Cause], dead: int, number: Callable[[Cause], int]) -> Iterator[HeadlinePart]:
    """How much of it the first cause is, with its topic; the others are in the table below."""
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


def _dealt_with(now: Situation) -> str:
    """What became of all that failed."""
    if not now.aside:
        return "it was replayed" if now.dead == 1 else f"all {count(now.cured)} were replayed"
    if not now.cured:
        return "it was put aside" if now.dead == 1 else f"all {count(now.aside)} were put aside"
    return f"{count(now.cured)} {_were(now.cured)} replayed and {count(now.aside)} put aside"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def _next(now: Situation) -> Iterator[HeadlinePart]:
    """What one would do next: while nothing is delivered, find out why; else deal with what failed."""
    open_ = _open(now)
    if _several_failed(now) and (latest := _latest(now, now.failing_topics[0])):
        open_ = [latest]
    if not now.over and now.silent_for is not None and now.silent_for > DEAD:
        yield HeadlinePart(" ")
        yield HeadlinePart("See which producer, and where", "fleet", (("topic", None),), button=True)
    elif not now.over and now.producers and (not now.connected or now.stalled):
        yield HeadlinePart(" ")
        yield HeadlinePart("See why, and what to do", "latency", (("topic", None),), button=True)
    elif now.left and open_:
        yield HeadlinePart(" ")
        yield HeadlinePart("See the records", "dead-letters", _group(open_[0]), button=True)


def _share(causes: Sequence[Cause], dead: int, number: Callable[[Cause], int]) -> tuple[str, str]:
    """How much of it the first cause is, around the name of its topic."""
    worst = causes[0]
    if len(causes) == 1:
        return ", on " if dead == 1 else ", all on ", ": "
    if all(cause.topic == worst.topic for cause in causes):
        return ", all on ", f", most ({count(number(worst))}): "
    return f", most ({count(number(worst))}) on ", ": "


def _group(cause: Cause) -> tuple[tuple[str, str | None], ...]:
    """Its dead letters; those that nobody has to deal with any more are found in any state."""
    query: tuple[tuple[str, str | None], ...] = (("topic", cause.topic),)
    query = (*query, ("group", cause.fingerprint)) if cause.fingerprint else query
    return query if cause.left else (*query, ("state", "any"))


def _waiting(now: Situation) -> Iterator[HeadlinePart]:
    """Dead letters that wait although nothing failed in the range."""
    if now.waiting and not now.left and not now.over:
        noun = "dead letter waits" if now.waiting == 1 else "dead letters wait"
        yield HeadlinePart(" ")
        yield HeadlinePart(f"{now.waiting:,} {noun}", "dead-letters", (("range", None), ("since", None)))
        yield HeadlinePart(" from before.")


def _outage(now: Situation) -> Iterator[HeadlinePart]:
    """That the brokers were away and are back, while others still ask whether they are."""
    if now.over or not now.connected or now.cut_off_ago is None:
        return
    since = (
        f"{plural(now.delivered_again, 'message')} {_were(now.delivered_again)} delivered since"
        if now.delivered_again
        else "nothing was delivered since"
    )
    yield HeadlinePart(
        f" No broker was connected for {age(now.cut_off_for)}; they came back {age(now.cut_off_ago)} ago, and {since}."
    )


def _lost(now: Situation) -> Iterator[HeadlinePart]:
    """Producers that are missing, or reach no broker, while others go on."""
    everybody = now.producers + now.gone
    if now.over or not now.producers or not now.connected:
        return
    if now.gone:
        verb = "has" if now.gone == 1 else "have"
        yield HeadlinePart(" ")
        yield HeadlinePart(f"{now.gone} of {plural(everybody, 'producer')}", "#producers")
        yield HeadlinePart(f" {verb} not been seen for {age(now.gone_for)}.")
    if now.connected < now.producers:
        cut_off = now.producers - now.connected
        why = f": {now.connection_error}" if now.connection_error else ""
        verb = "reaches" if cut_off == 1 else "reach"
        yield HeadlinePart(f" {cut_off} of {plural(now.producers, 'producer')} {verb} no broker{why}.")


def sense(found: Headline) -> str:
    """The sense of a headline without its numbers, which changes only when there is news."""
    return "".join(
        piece.text for piece in found.pieces if piece.page or not any(map(str.isdigit, piece.text))
    )
