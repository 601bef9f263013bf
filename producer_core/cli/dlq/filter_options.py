"""The options that select dead letters, named after the fields of DeadLetterFilter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from producer_core._internal.join_names import join_names
from producer_core._internal.plural import plural
from producer_core.cli import options, output
from producer_core.cli.lazy_group import Failed

if TYPE_CHECKING:
    from producer_core.dlq import DeadLetterFilter, DeadLetters

F = TypeVar("F", bound=Callable[..., Any])

STATES = ("dead", "replaying", "replayed", "landed", "archived", "purged", "any")
VERDICTS = ("not_sent", "rejected", "possibly_persisted", "found", "absent", "inconclusive")

_OPTIONS = (
    click.option("--topic", help="Select by topic."),
    click.option("--group", help="Select by group (the fingerprint from dlq groups)."),
    click.option("--code", help="Select by error code."),
    click.option("--verdict", type=click.Choice(VERDICTS), help="Select by verdict."),
    click.option(
        "--since",
        type=options.TimestampType(),
        help="Failed at or after: 2h (ago), or 2026-01-31T12:00.",
    ),
    click.option("--until", type=options.TimestampType(), help="Failed before this time."),
    click.option("--key", help="Select by key: text, or bytes as 0x00ff."),
    click.option("--message-id", help="Select one message."),
    click.option("--ids", help="Select messages by id, separated by commas."),
    click.option("--text", help="Text in the error, case-insensitive."),
    click.option("--cluster", "--cluster-id", "cluster_id", help="Select by cluster."),
    click.option("--cluster-or-unknown", help="Select by cluster, including unknown clusters."),
    click.option("--producer-id", help="Select by producer."),
    options.application,
    click.option(
        "--body",
        help="Text (or 0x00ff) in value, key or headers; a bounded search.",
    ),
)
_STATE = click.option(
    "--state", type=click.Choice(STATES), default="dead", show_default=True, help="Select by state."
)


def filter_options(command: F) -> F:
    """Add all selection options except --state, for commands that change dead letters."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def filter_and_state_options(command: F) -> F:
    """Add all selection options, for commands that only read."""
    return filter_options(_STATE(command))


def chosen(given: Mapping[str, Any], *, state: str | None = None) -> DeadLetterFilter:
    """Return the filter of the options. The state `any` becomes None."""
    from producer_core.dlq import DeadLetterFilter

    fields = {name: value for name, value in given.items() if value is not None}
    if "ids" in fields:
        fields["ids"] = DeadLetterFilter.from_query({"ids": fields["ids"]}).ids
    for name in ("ids", "text"):
        if not fields.get(name, True):
            raise Failed(
                f"--{name} is empty, which could mean all dead letters or none.",
                f"Omit --{name} to select all. Check for an empty variable.",
            )
    selected = state or fields.pop("state", "dead")
    return DeadLetterFilter(**{**fields, "state": None if selected == "any" else selected})


def frozen(dead: DeadLetters, where: DeadLetterFilter) -> DeadLetterFilter:
    """Return the filter for a change. Replace --body by the ids that a complete search finds now."""
    if where.body is None:
        return where
    chosen = dead.frozen(where)
    searched = dead.count(replace(where, body=None))
    output.say(f"Searched the bodies of {plural(searched, 'dead letter')}.", err=True)
    return chosen


def summary(dead: DeadLetters, where: DeadLetterFilter, number: int) -> str:
    """Return the selection for a confirmation, for example `43 dead letters of orders and payments`."""
    topics = list(dead.count_by(where, "topic"))
    named = named_topics(topics)
    return f"{plural(number, 'dead letter')} of {named}" if topics else plural(number, "dead letter")


def named_topics(topics: Sequence[str]) -> str:
    """Return the first topics as text, and the number of the others: `a, b, c and 2 more topics`."""
    more = [plural(len(topics) - 3, "more topic")] if len(topics) > 3 else []
    return join_names([*topics[:3], *more])


def none(dead: DeadLetters, where: DeadLetterFilter) -> str:
    """Return why a selection matches nothing, with the topics that have dead letters, because it may be mistyped."""
    from producer_core.dlq import DeadLetterFilter

    topics = dead.count_by(DeadLetterFilter(), "topic")
    if not topics and (held := dead.count(DeadLetterFilter(state="replaying"))):
        return f"{plural(held, 'dead letter is', 'dead letters are')} in a replay. See producer-core replay status."
    if not topics:
        return "the store has no dead letters."
    named = ", ".join(f"{topic} ({number:,})" for topic, number in list(topics.items())[:5])
    more = f" and {plural(len(topics) - 5, 'more topic')}" if len(topics) > 5 else ""
    unknown = where.topic is not None and where.topic not in topics
    reason = (
        f"topic {where.topic!r} has no dead letters" if unknown else "the selection matches no dead letter"
    )
    return f"{reason}. Topics with dead letters: {named}{more}."


reveal_option = click.option(
    "--reveal", is_flag=True, help="Unmask secrets, card numbers and addresses; audit-logged."
)
