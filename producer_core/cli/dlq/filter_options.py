"""The options that select dead letters: one for each field of a DeadLetterFilter, by the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed
from producer_core.events import SAFE_VERDICTS

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter, DeadLetters

F = TypeVar("F", bound=Callable[..., Any])

STATES = ("dead", "replaying", "replayed", "landed", "archived", "purged", "any")
VERDICTS = ("not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive")

_OPTIONS = (
    click.option("--topic", help="Of this topic."),
    click.option("--group", help="Of this group (the fingerprint that dlq groups shows)."),
    click.option("--code", help="With this error code."),
    click.option("--verdict", type=click.Choice(VERDICTS), help="With this verdict."),
    click.option(
        "--since", type=options.TimestampType(), help="Died at or after: 2h (ago), or 2026-01-31T12:00."
    ),
    click.option("--until", type=options.TimestampType(), help="Died before."),
    click.option("--key", help="With this key: text, or bytes as 0x00ff."),
    click.option("--message-id", help="This message."),
    click.option("--ids", help="These messages, separated by commas."),
    click.option("--text", help="With this in the error text, in capitals or not."),
    click.option("--cluster-id", help="Of this cluster."),
    click.option("--cluster-or-unknown", help="Of this cluster, or from before the cluster was known."),
    click.option("--producer-id", help="Of this producer."),
    click.option(
        "--body",
        help="With this in value, key or headers: text, or bytes as 0x00ff. A bounded search that says how far it looked.",
    ),
)
_STATE = click.option(
    "--state", type=click.Choice(STATES), default="dead", show_default=True, help="In this state."
)


def filter_options(command: F) -> F:
    """All but the state, which an act knows by itself."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_and_state_options(command: F) -> F:
    """All of them, for looking."""
    return filter_options(_STATE(command))


def chosen(given: Mapping[str, Any], *, state: str | None = None) -> DeadLetterFilter:
    """The filter that the options make; `any` state is None."""
    from producer_core.dlq import DeadLetterFilter

    fields = {name: value for name, value in given.items() if value is not None}
    if "ids" in fields:
        fields["ids"] = DeadLetterFilter.from_query({"ids": fields["ids"]}).ids
    for name in ("ids", "text"):
        if not fields.get(name, True):
            raise Failed(
                f"--{name} is empty; would that mean all of them, or none?",
                f"Leave --{name} out to choose all. Is a variable of yours empty?",
            )
    asked = state or fields.pop("state", "dead")
    return DeadLetterFilter(**{**fields, "state": None if asked == "any" else asked})


def frozen(dead: DeadLetters, where: DeadLetterFilter) -> DeadLetterFilter:
    """The filter for an act: with a body the ids that a complete search finds now, and how far it looked is said."""
    if where.body is None:
        return where
    chosen = dead.frozen(where)
    looked = dead.count(replace(where, body=None))
    output.say(f"Looked into the bodies of {output.count(looked, 'dead letter')}.", err=True)
    return chosen


def what(dead: DeadLetters, where: DeadLetterFilter, number: int) -> str:
    """«43 dead letters of orders, payments»: said before an act."""
    topics = list(dead.count_by(where, "topic"))
    named = ", ".join(topics[:3]) + (f" and {len(topics) - 3} more topics" if len(topics) > 3 else "")
    return (
        f"{output.count(number, 'dead letter')} of {named}" if topics else output.count(number, "dead letter")
    )


def none(dead: DeadLetters, where: DeadLetterFilter) -> str:
    """«no dead letter is of 'ordrs'. There are orders (604), payments (12) and 3 more topics»: a selection that matches
    nothing is a mistyped one more often than an empty queue."""
    from producer_core.dlq import DeadLetterFilter

    topics = dead.count_by(DeadLetterFilter(), "topic")
    if not topics:
        return "the store has no dead letters."
    named = ", ".join(f"{topic} ({number:,})" for topic, number in list(topics.items())[:5])
    more = f" and {output.count(len(topics) - 5, 'more topic')}" if len(topics) > 5 else ""
    wrong = where.topic is not None and where.topic not in topics
    missed = f"no dead letter is of {where.topic!r}" if wrong else "the selection matches none"
    return f"{missed}. There are dead letters of {named}{more}."


def risks(verdicts: Mapping[str, int]) -> str:
    """How many are safe to send again, and what happens to the others."""
    safe = sum(number for verdict, number in verdicts.items() if verdict in SAFE_VERDICTS)
    doubtful = sum(verdicts.values()) - safe
    if not doubtful:
        return "No broker has any of them: nothing can arrive twice."
    return (
        f"{safe:,} are on no broker. {doubtful:,} may be on their topic already: each is looked for there first, "
        "and what is not found stays a dead letter unless you choose to send it anyway."
    )
