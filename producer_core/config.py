"""Settings: Kafka's names in, librdkafka's out; a contradiction is an error that says the fix."""

from __future__ import annotations

import difflib
import math
import numbers
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from producer_core._internal.librdkafka import client_refusal, knows_property, property_names, refusal
from producer_core._internal.user_callbacks import short_repr
from producer_core.errors import ConfigError

DEFAULT_RETRIABLE = (
    "KafkaTimeoutError",
    "NotLeaderForPartitionError",
    "RequestTimedOutError",
    "BrokerNotAvailableError",
)

DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "enable.idempotence": True,
        "acks": "all",
        "max.in.flight.requests.per.connection": 5,
        "compression.type": "lz4",
        "linger.ms": 5,
        "message.timeout.ms": 120_000,
        "request.timeout.ms": 30_000,
        "socket.timeout.ms": 30_000,
        "partitioner": "murmur2_random",  # keys land where Java's and kafka-python's clients put them
        "statistics.interval.ms": 1_000,
        "retry.backoff.ms": 500,  # a refusal that comes sooner is of the only transmission (failures.judge)
        "topic.metadata.propagation.max.ms": 5_000,  # a missing topic is a quick answer
    }
)
"""What we set unless the user did."""

NAMES: Mapping[str, str] = MappingProxyType(
    {
        "delivery_timeout_ms": "message.timeout.ms",
        "delivery.timeout.ms": "message.timeout.ms",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "request.required.acks": "acks",
        "compression.codec": "compression.type",
        "queue.buffering.max.ms": "linger.ms",
        "message.send.max.retries": "retries",
        "metadata.broker.list": "bootstrap.servers",
        "max_request_size": "message.max.bytes",
        "sasl_plain_username": "sasl.username",
        "sasl_plain_password": "sasl.password",
        "sasl.mechanisms": "sasl.mechanism",
        "ssl_cafile": "ssl.ca.location",
        "ssl_certfile": "ssl.certificate.location",
        "ssl_keyfile": "ssl.key.location",
        "ssl_password": "ssl.key.password",
        "ssl_crlfile": "ssl.crl.location",
        "metadata_max_age_ms": "topic.metadata.refresh.interval.ms",
        "send_buffer_bytes": "socket.send.buffer.bytes",
        "receive_buffer_bytes": "socket.receive.buffer.bytes",
    }
)
"""Names whose librdkafka spelling is not just dots for underscores; Kafka's, kafka-python's, and aliases."""

_OURS = ("max_block_ms", "value_serializer", "key_serializer")
_CONNECTION = (
    "bootstrap.servers", "security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.", "oauth_cb",
    "socket.", "broker.address.", "client.dns.", "reconnect.",
)  # fmt: skip
_SECRET = re.compile(r"password|secret|\.pem$|token|jaas|oauthbearer\.config|private", re.I)
_ADDRESS = re.compile(r"^(?:[A-Z_]+://)?(?:\[[0-9a-fA-F:.%\w]+\]|[^\s:/,@\0]+)(?::(?P<port>\d{1,5}))?$")
_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb")
_INSTEAD = {
    "partitioner": "Name one of librdkafka's, for example 'murmur2_random', or pass partition= to send_message.",
    "on_delivery": "Pass on_delivery= to send_message.",
    "dr_cb": "Pass on_delivery= to send_message.",
}


@dataclass(frozen=True)
class RetryConfig:
    """When we send a message again after librdkafka gave it up.

    `max_retries` counts our resends, each with the whole delivery timeout; so a message is dead at the
    latest after (max_retries + 1) x delivery timeout + the delays. `retriable_errors` takes kafka-python's
    class names, Kafka's protocol names or librdkafka's; an unknown name is a ConfigError.
    """

    max_retries: int = 3
    initial_delay_ms: int = 100
    max_delay_ms: int = 30_000
    backoff_multiplier: float = 2.0
    jitter: bool = True
    retriable_errors: list[str] = field(default_factory=lambda: list(DEFAULT_RETRIABLE))

    def __post_init__(self) -> None:
        for name in ("max_retries", "initial_delay_ms", "max_delay_ms", "backoff_multiplier"):
            value = getattr(self, name)
            number = isinstance(value, numbers.Integral if name == "max_retries" else numbers.Real)
            if isinstance(value, bool) or not number or not 0 <= value < math.inf:
                raise ConfigError(
                    f"RetryConfig: {name}={value!r} is not a number from 0 on.",
                    fix="max_retries=0 switches retries off.",
                )
        if self.backoff_multiplier < 1:
            raise ConfigError(
                "backoff_multiplier below 1 would retry faster each time.", fix="Use 1.0 or more."
            )
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"RetryConfig: jitter={self.jitter!r} is not True or False.")
        names: Any = self.retriable_errors
        if isinstance(names, str):
            raise ConfigError(
                "RetryConfig: retriable_errors is a list of names.",
                fix=f"Write retriable_errors=[{names!r}].",
            )


@dataclass(frozen=True, repr=False)
class ClientConfig:
    """What one librdkafka client is made with; its repr hides secrets.

    `max_block` is how long `send_message` waits for room, in seconds. `asked` names the settings that are not our
    defaults, even where they say the same.
    """

    settings: Mapping[str, Any]
    max_block: float = 60.0
    value_serializer: Callable[[Any], bytes] | None = None
    key_serializer: Callable[[Any], bytes] | None = None
    explicit: frozenset[str] = frozenset()

    @property
    def given(self) -> dict[str, Any]:
        """The settings without our defaults: what another client to the same cluster should be told as well."""
        return {name: value for name, value in self.settings.items() if name in self.explicit}

    @property
    def bootstrap_servers(self) -> str:
        return str(self.settings["bootstrap.servers"])

    @property
    def client_id(self) -> str:
        return str(self.settings["client.id"])

    @property
    def delivery_timeout(self) -> float:
        """Seconds until librdkafka gives a message up; infinite when it never does (message.timeout.ms=0)."""
        return float(self.settings["message.timeout.ms"]) / 1000 or math.inf

    @property
    def retry_backoff(self) -> float:
        """Seconds librdkafka waits at least, less 20 % of jitter, before it transmits a message again."""
        first = float(self.settings["retry.backoff.ms"])
        return min(first, float(self.settings.get("retry.backoff.max.ms", 1000))) / 1000

    @property
    def max_message_bytes(self) -> int:
        return int(self.settings.get("message.max.bytes", 1_000_000))

    @property
    def idempotent(self) -> bool:
        return _true(self.settings.get("enable.idempotence", False))

    def masked(self) -> dict[str, Any]:
        """The settings as they may be shown: secrets replaced, callables left out."""
        return masked(self.settings)

    def __repr__(self) -> str:
        return f"ClientConfig({self.masked()})"


def client_config(
    bootstrap_servers: str | Sequence[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    prefix: str = "reliable-producer",
) -> ClientConfig:
    """The settings of a producing client: the user's, then DEFAULTS where absent, checked against each other.

    Names may be Kafka's (`linger.ms`), kafka-python's (`linger_ms`) or librdkafka's.
    """
    bootstrap_servers, given = servers_and_settings(bootstrap_servers, overrides)
    ours = {name: given.pop(name) for name in _OURS if name in given}
    chosen = _translate(given)
    if "bootstrap.servers" not in chosen:
        chosen["bootstrap.servers"] = addresses(bootstrap_servers)
    chosen.setdefault("client.id", f"{prefix}-{uuid.uuid4().hex[:8]}")
    asked = dict(chosen)
    for name, value in DEFAULTS.items():
        chosen.setdefault(name, value)
    _relax(chosen, asked)
    _check_values(chosen)
    _check(chosen)
    _check_security(chosen)
    _check_serializers(ours)
    return ClientConfig(
        MappingProxyType(chosen),
        max_block=_seconds(ours.get("max_block_ms", 60_000)),
        value_serializer=ours.get("value_serializer"),
        key_serializer=ours.get("key_serializer"),
        explicit=frozenset(asked),
    )


def servers_and_settings(
    servers: str | Sequence[str] | Mapping[str, Any], settings: Mapping[str, Any] | None
) -> tuple[str | Sequence[str], dict[str, Any]]:
    """Return addresses and settings; one dict with `bootstrap.servers` in it, as confluent-kafka takes it, gives both."""
    try:
        given = dict(settings or {})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The settings must be a dict, not {short_repr(settings)}.", fix="For example {'linger.ms': 20}."
        ) from error
    if isinstance(servers, Mapping):
        for name in servers.keys() & given.keys():
            if servers[name] != given[name]:
                raise ConfigError(
                    f"The setting {short_repr(name)} is given twice, with two values.", fix="Keep one."
                )
        given = {**servers, **given}
        servers = ()
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(
                f"{short_repr(name)} is not the name of a setting.",
                fix="Names are text, for example 'linger.ms'.",
            )
    return servers, given


def addresses(servers: str | Sequence[str]) -> str:
    """`host:port` addresses, given as a list or a comma string, in librdkafka's form."""
    if isinstance(servers, bytes | Mapping) or not isinstance(servers, Iterable):
        raise ConfigError(f"{short_repr(servers)} is not an address.", fix=_HOST_PORT)
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    for part in listed:
        if not isinstance(part, str):
            raise ConfigError(f"{short_repr(part)} among the addresses is not text.", fix=_HOST_PORT)
    parts = [part.strip() for part in listed]
    parts = [part for part in parts if part]
    if not parts:
        raise ConfigError(
            "No bootstrap server was given.", fix="For example bootstrap_servers=['localhost:9092']."
        )
    for part in parts:
        _check_address(part)
    return ",".join(parts)


_HOST_PORT = "Write host:port, for example broker1:9092."


def _check_address(address: str) -> None:
    if "@" in address:  # what stands before it is a password, and is not repeated
        raise ConfigError(
            f"{'***' + address[address.rindex('@') :]!r} is not an address: it holds a user or a password.",
            fix="Write host:port, and give the settings sasl_plain_username and sasl_plain_password.",
        )
    found = _ADDRESS.match(address)
    if found is None or not 0 < int(found["port"] or 9092) < 1 << 16:
        raise ConfigError(f"{address!r} is not an address.", fix=_HOST_PORT)


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a client's settings (librdkafka's names) those that say how its cluster is reached; for clients that only ask.

    The others are for producing, and one of them does harm: a client with idempotence asks for a producer id as
    soon as it connects, and breaks where its user may write nowhere.
    """
    return {name: value for name, value in settings.items() if name.startswith(_CONNECTION)}


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as they may be shown."""
    return {
        name: "***" if _SECRET.search(name) else value
        for name, value in settings.items()
        if not callable(value)
    }


def _translate(given: Mapping[str, Any]) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in given.items():
        for target, converted in _targets(name, value):
            if converted is None:  # kafka-python's way to say: the default
                continue
            if target in chosen and chosen[target] != converted:
                raise ConfigError(
                    f"{origin[target]!r} and {name!r} both set {target}, to different values.",
                    fix="Keep one.",
                )
            chosen[target], origin[target] = converted, name
    if "request.timeout.ms" in chosen:  # kafka-python's covers both of librdkafka's
        chosen.setdefault("socket.timeout.ms", chosen["request.timeout.ms"])
    return chosen


def _targets(name: str, value: Any) -> list[tuple[str, Any]]:
    if name in ("buffer_memory", "buffer.memory"):
        return [("queue.buffering.max.kbytes", max(1, _whole(name, value) // 1024))]
    if name in ("bootstrap_servers", "bootstrap.servers", "metadata.broker.list"):
        return [("bootstrap.servers", addresses(value))]
    dotted = (
        name if knows_property(name) else name.replace("_", ".")
    )  # log_level is librdkafka's own spelling
    target = NAMES.get(name) or NAMES.get(name.replace("_", ".")) or dotted
    if not name.endswith("_cb") and not knows_property(target):
        raise ConfigError(f"Unknown setting {name!r}.", fix=_INSTEAD.get(name) or _nearest(name))
    if target == "acks" and str(value) == "-1":
        value = "all"
    return [(name if name.endswith("_cb") else target, value)]


def _nearest(name: str) -> str:
    known = [*DEFAULTS, *NAMES.values(), "bootstrap.servers", *property_names(), *NAMES, *_OURS]
    close = difflib.get_close_matches(name.replace("_", "."), known, n=1) or difflib.get_close_matches(
        name, known, n=1
    )
    return f"Did you mean {close[0]!r}?" if close else "See librdkafka's CONFIGURATION.md for the names."


def _relax(chosen: dict[str, Any], asked: Mapping[str, Any]) -> None:
    """Take back defaults that contradict what the user chose."""
    if "retry.backoff.ms" not in asked and "retry.backoff.max.ms" in asked:
        most = _number(chosen, "retry.backoff.max.ms")
        chosen["retry.backoff.ms"] = int(min(chosen["retry.backoff.ms"], most))
    if not _true(chosen["enable.idempotence"]) and "acks" in asked and str(asked["acks"]) == "0":
        chosen.pop("request.timeout.ms", None)


def _check_values(chosen: Mapping[str, Any]) -> None:
    for name, value in chosen.items():
        if callable(value) and name in _CALLBACKS:
            continue
        if callable(value):
            raise ConfigError(
                f"Setting {name!r} takes no function.",
                fix=_INSTEAD.get(name, "See librdkafka's CONFIGURATION.md for its values."),
            )
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if (reason := refusal(name, text)) is not None:
            shown = "Its value is not valid" if _SECRET.search(name) else reason
            raise ConfigError(
                f"Setting {name!r}: {shown.rstrip().rstrip('.')}.", fix="See librdkafka's CONFIGURATION.md."
            )


def _check_security(chosen: Mapping[str, Any]) -> None:
    """Have the client library try what no setting shows alone: a mechanism, a certificate, a missing password."""
    if str(chosen.get("security.protocol", "plaintext")).lower() == "plaintext":
        return
    mechanism = chosen.get("sasl.mechanism") or chosen.get("sasl.mechanisms")
    if "oauth_cb" in chosen or str(mechanism).upper() == "OAUTHBEARER":  # the client asks for a token
        return
    if (reason := client_refusal(connection_settings(chosen))) is not None:
        raise ConfigError(
            f"The Kafka client refuses these settings: {reason.rstrip('.')}.",
            fix="Check sasl.mechanism, the user, the password and the files that the ssl settings name.",
        )


def _check_serializers(ours: Mapping[str, Any]) -> None:
    for name in ("value_serializer", "key_serializer"):
        if ours.get(name) is not None and not callable(ours[name]):
            raise ConfigError(
                f"{name}={short_repr(ours[name])} is not a function.",
                fix="It takes a value and returns bytes.",
            )


def _check(chosen: Mapping[str, Any]) -> None:
    acks, idempotent = str(chosen["acks"]), _true(chosen["enable.idempotence"])
    if idempotent and acks != "all":
        raise ConfigError(
            f"acks={acks} contradicts idempotence: without all replicas a message can be lost after its acknowledgement.",
            fix="Use acks='all', or set enable_idempotence=False and accept loss.",
        )
    if idempotent and _number({"retries": 1, **chosen}, "retries") == 0:
        raise ConfigError(
            "retries=0 contradicts idempotence, which needs librdkafka's own retries to keep order.",
            fix='Leave retries out, and use ordering="strict" for order at any price; RetryConfig(max_retries=0) switches our own resends off.',
        )
    if idempotent and _number(chosen, "max.in.flight.requests.per.connection") > 5:
        raise ConfigError(
            "More than 5 requests in flight contradict idempotence: the broker remembers 5 batches.",
            fix="Use max_in_flight_requests_per_connection=5 or less.",
        )
    if _true(chosen.get("enable.gapless.guarantee", False)):
        raise ConfigError(
            "enable.gapless.guarantee turns one refused message into a fatal error of the whole client.",
            fix='Leave it out and use ordering="strict": order is kept, a refused message becomes a dead letter and the others go on.',
        )
    timeout, linger = _number(chosen, "message.timeout.ms"), _number(chosen, "linger.ms")
    if timeout and linger >= timeout:
        raise ConfigError(
            f"linger_ms={linger:.0f} is not below delivery_timeout_ms={timeout:.0f}: messages would expire while they wait.",
            fix="Lower linger_ms, or raise delivery_timeout_ms.",
        )
    if "transactional.id" in chosen:
        raise ConfigError(
            "A transactional.id among the settings would make a client whose transactions nobody commits.",
            fix='Leave it out here and use delivery="exactly_once", with transactional_id= if you want to name it.',
        )


def _seconds(milliseconds: Any) -> float:
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, int | float) or not milliseconds >= 0:
        raise ConfigError(
            f"max_block_ms={milliseconds!r} is not a number of milliseconds from 0 on; it cannot be negative.",
            fix="0 means: raise at once when the queue is full.",
        )
    return float(milliseconds) / 1000


def _whole(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"{name}={value!r} is not a number.", fix="Give a whole number of bytes."
        ) from error


def _true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "t")


def _number(chosen: Mapping[str, Any], name: str) -> float:
    """A setting as a number; librdkafka itself takes what merely begins with one."""
    try:
        return float(chosen[name])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}={chosen[name]!r} is not a number.", fix="Write a whole number.") from error
