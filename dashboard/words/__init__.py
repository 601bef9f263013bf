"""The words: what the page says of its numbers, in plain sentences and with units."""

from dashboard.words.alerts import TONES, alert
from dashboard.words.letters import VERDICTS, act, hex_dump, none_match, pretty, why_no_replay
from dashboard.words.moments import age, data_age, live, moment, nothing_known, when
from dashboard.words.numbers import (
    compact,
    count,
    milliseconds,
    percent,
    plural,
    rate,
    sentence_case,
    short,
    size,
)
from dashboard.words.overview import Situation, connection, producer_state, sentence

__all__ = [
    "TONES",
    "VERDICTS",
    "Situation",
    "act",
    "age",
    "alert",
    "compact",
    "connection",
    "count",
    "data_age",
    "hex_dump",
    "live",
    "milliseconds",
    "moment",
    "none_match",
    "nothing_known",
    "percent",
    "plural",
    "pretty",
    "producer_state",
    "rate",
    "sentence",
    "sentence_case",
    "short",
    "size",
    "when",
    "why_no_replay",
]
