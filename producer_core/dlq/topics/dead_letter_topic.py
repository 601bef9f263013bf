"""Name the dead-letter topic of each dead letter that a producer publishes as it dies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, get_args

from producer_core._internal.topic_names import TOPIC_RULE, is_topic_name
from producer_core._internal.user_callbacks import is_containable, short_repr
from producer_core.dlq.topics.origin import WrittenDialect
from producer_core.errors import ConfigError
from producer_core.events import DeadLetter

_SAMPLE = "orders"


@dataclass(frozen=True)
class DeadLetterTopic:
    """The dead-letter topic of a producer, and the headers of its records.

    `topic` is a name, in which {topic} is replaced by the message's own topic, or a function that returns the name for a
    DeadLetter, or None for a dead letter that is not to be published. The function runs on a thread of the producer; if it
    raises or returns anything else, the dead letter is not published. `dialect` adds the headers of another dialect, as
    for `dlq publish`: "spring" or "connect". Raise ConfigError for an invalid name or dialect.
    """

    topic: str | Callable[[DeadLetter], str | None] = "{topic}-dlt"
    dialect: WrittenDialect = "producer_core"

    def __post_init__(self) -> None:
        if self.dialect not in get_args(WrittenDialect):
            raise ConfigError(
                f"dialect={short_repr(self.dialect)} is not a known dialect.",
                fix=f"Use one of {', '.join(get_args(WrittenDialect))}.",
            )
        if callable(self.topic):
            return
        if not isinstance(self.topic, str) or not is_topic_name(self.topic.replace("{topic}", _SAMPLE)):
            raise ConfigError(
                f"dead_letter_topic={short_repr(self.topic)} is not a topic name or a function.",
                fix=f'For example, dead_letter_topic="{{topic}}-dlt". {TOPIC_RULE}',
            )
        if self.topic == "{topic}":
            raise ConfigError(
                "dead_letter_topic is the topic of the messages; its consumers would read the dead letters.",
                fix='Name another topic, such as "{topic}-dlt".',
            )

    @property
    def identity(self) -> str | None:
        """The name, or that of the function. Producers with the same identity publish each other's dead letters.

        None for a lambda, a nested function, a method or another object, whose name says too little of what it returns.
        """
        if isinstance(self.topic, str):
            return self.topic
        function = self.topic
        if not isinstance(function, FunctionType):
            return None
        module = function.__module__
        place = function.__code__.co_filename if module == "__main__" else module
        name = f"{place}.{function.__qualname__}()"
        return None if "<" in name else name

    def name_of(self, dead_letter: DeadLetter) -> str | None:
        """Return the topic for this dead letter, or None without one.

        Raise ValueError if it is no topic name or the message's own topic, or if the function raises.
        """
        if isinstance(self.topic, str):
            name: Any = self.topic.replace("{topic}", dead_letter.topic)
        else:
            try:
                name = self.topic(dead_letter)
            except BaseException as error:
                if not is_containable(error):
                    raise
                raise ValueError(f"dead_letter_topic failed: {type(error).__name__}: {error}") from error
        if name is None:
            return None
        if not is_topic_name(name):
            raise ValueError(f"dead_letter_topic gave {short_repr(name, 80)}, which is not a topic name")
        if name == dead_letter.topic:
            raise ValueError(
                f"dead_letter_topic gave {name}, the message's own topic, whose consumers would read the dead letter"
            )
        return str(name)
