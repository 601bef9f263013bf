"""Client settings: accept Kafka's, kafka-python's and librdkafka's names, and reject contradictions with a fix."""

from __future__ import annotations

import difflib
import math
import numbers
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from producer_core._internal.compression_choice import (
    AUTO,
    COMPRESSION_CHOICE_KEY,
    COMPRESSION_SETTING,
    CompressionChoice,
    pop_auto,
)
from producer_core._internal.consumer_settings import CONSUMER_SETTINGS
from producer_core._internal.id_header import DEFAULT_ID_FORMAT, ID_FORMAT_KEY, ID_FORMAT_SETTING, id_format
from producer_core._internal.join_names import join_names
from producer_core._internal.librdkafka import client_refusal, knows_property, property_names
from producer_core._internal.rate_settings import RATE_SETTINGS, RateLimits, rate_limits
from producer_core._internal.schema_settings import (
    SchemaSettings,
    pop_registry_settings,
    pop_schema_settings,
)
from producer_core._internal.settings_file import read_settings
from producer_core._internal.token_source import token_source
from producer_core._internal.user_callbacks import short_repr
from producer_core._internal.value_rejection import rejection, text_of
from producer_core.errors import ConfigError

DEFAULT_SERVERS = ("localhost:9092",)
"""Addresses that apply unless the user gives some. Compared by identity: an explicit localhost:9092 is not the default."""

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
        "partitioner": "murmur2_random",  # the partitions that Java's and kafka-python's clients choose
        "statistics.interval.ms": 1_000,
        "retry.backoff.ms": 500,  # an error report that arrives sooner belongs to the only transmission
        "topic.metadata.propagation.max.ms": 5_000,  # report a missing topic quickly
    }
)
"""Settings that apply unless the user gives them."""

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
"""Names whose librdkafka spelling needs more than dots for underscores: Kafka's, kafka-python's, and aliases."""

_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_OWN_SETTINGS = ("max_block_ms", "value_serializer", "key_serializer", ID_FORMAT_SETTING, *RATE_SETTINGS)
_CONNECTION = (
    "bootstrap.servers", "security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.", "https.", "oauth_cb",
    "socket.", "broker.address.", "client.dns.", "reconnect.",
)  # fmt: skip
_SECRET = re.compile(r"password|secret|\.pem$|token|jaas|oauthbearer\.(?:config|extensions)|private", re.I)
_ADDRESS = re.compile(r"^(?:[A-Z_]+://)?(?:\[[0-9a-fA-F:.%\w]+\]|[^\s:/,@\0]+)(?::(?P<port>\d{1,5}))?$")
_CALLBACKS = ("error_cb", "stats_cb", "throttle_cb", "oauth_cb")
_ALTERNATIVES = {
    "partitioner": "Use the name of one of librdkafka's partitioners, for example 'murmur2_random', or pass partition= "
    "to send_message.",
    "on_delivery": "Pass on_delivery= to send_message.",
    "dr_cb": "Pass on_delivery= to send_message.",
    "logger": "Leave it out: the client's log is on the Python logger 'producer_core'.",
    "on_commit": "Leave it out: only consumers commit.",
    "default.topic.config": "Put its settings beside the others.",
    "oauth_cb": "Pass a function, which only Python can do, or set sasl.oauthbearer.method=oidc and the client credentials.",
    "sasl.jaas.config": "Set sasl_mechanism, sasl_plain_username and sasl_plain_password; only Java clients read JAAS.",
    "ssl.truststore.location": "Set ssl_cafile to a PEM file; only Java clients read trust stores.",
    "ssl.truststore.password": "Set ssl_cafile to a PEM file; only Java clients read trust stores.",
}


_RETRY_FIX = {
    "max_retries": "max_retries=0 disables retries.",
    "backoff_multiplier": "backoff_multiplier=1.0 keeps the delay constant.",
}


@dataclass(frozen=True)
class RetryConfig:
    """Configure the resends of a message that librdkafka no longer retries.

    `max_retries` counts our resends, each with the whole delivery timeout. A message therefore becomes a dead letter
    after at most (max_retries + 1) x the delivery timeout, plus the delays. `retriable_errors` accepts kafka-python's class
    names, Kafka's protocol names and librdkafka's names; an unknown name raises ConfigError.
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
                kind = "whole number" if name == "max_retries" else "number"
                raise ConfigError(
                    f"RetryConfig: {name} must be a {kind}, 0 or more, not {value!r}.",
                    fix=_RETRY_FIX.get(name, "Write a number of milliseconds."),
                )
        if self.backoff_multiplier < 1:
            raise ConfigError(
                "backoff_multiplier below 1 would shorten the delay with each retry.", fix="Use 1.0 or more."
            )
        if not isinstance(self.jitter, bool):
            raise ConfigError(f"RetryConfig: jitter={self.jitter!r} is not True or False.")
        names: Any = self.retriable_errors
        if isinstance(names, str):
            raise ConfigError(
                "RetryConfig: retriable_errors must be a list of names.",
                fix=f"Write retriable_errors=[{names!r}].",
            )
        if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
            raise ConfigError(
                f"RetryConfig: retriable_errors={short_repr(names)} is not a list of error names.",
                fix="For example, retriable_errors=['REQUEST_TIMED_OUT']; leave it out for the default.",
            )


@dataclass(frozen=True, repr=False)
class ClientConfig:
    """Holds the settings of one librdkafka client. The repr hides secrets.

    `max_block` is the time that `send_message` waits for room, in seconds. `explicit` names the settings that the user
    gave, including those equal to our defaults.
    """

    settings: Mapping[str, Any]
    max_block: float = 60.0
    value_serializer: Callable[..., bytes | None] | None = None
    key_serializer: Callable[..., bytes | None] | None = None
    explicit: frozenset[str] = frozenset()
    schemas: SchemaSettings | None = None
    rate_limits: RateLimits | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Return the settings without our defaults, for another client to the same cluster."""
        return {name: value for name, value in self.settings.items() if name in self.explicit}

    @property
    def bootstrap_servers(self) -> str:
        return str(self.settings["bootstrap.servers"])

    @property
    def client_id(self) -> str:
        return str(self.settings["client.id"])

    @property
    def delivery_timeout(self) -> float:
        """Return the seconds until librdkafka stops retrying a message; infinity for message.timeout.ms=0."""
        return float(self.settings["message.timeout.ms"]) / 1000 or math.inf

    @property
    def retry_backoff(self) -> float:
        """Return librdkafka's minimum wait before a retransmission, in seconds, before its jitter of -20%."""
        first = float(self.settings["retry.backoff.ms"])
        return min(first, float(self.settings.get("retry.backoff.max.ms", 1000))) / 1000

    @property
    def compression(self) -> CompressionChoice | None:
        """Return the choice of the codec with compression_type="auto"; None with a fixed codec."""
        choice: CompressionChoice | None = self.settings.get(COMPRESSION_CHOICE_KEY)
        return choice

    @property
    def statistics_interval(self) -> float:
        """Return the seconds between two statistics of the client; infinity if it emits none."""
        return float(self.settings["statistics.interval.ms"]) / 1000 or math.inf

    @property
    def max_message_bytes(self) -> int:
        return int(self.settings.get("message.max.bytes", 1_000_000))

    @property
    def idempotent(self) -> bool:
        return _is_true(self.settings.get("enable.idempotence", False))

    def masked(self) -> dict[str, Any]:
        """Return the settings for display: secrets are replaced, callables are left out."""
        return masked(self.settings)

    def __repr__(self) -> str:
        return f"ClientConfig({self.masked()})"


def client_config(
    bootstrap_servers: str | Sequence[str] | Mapping[str, Any],
    overrides: Mapping[str, Any] | None = None,
    *,
    prefix: str = "reliable-producer",
) -> ClientConfig:
    """Return the settings of a producing client: the user's, completed with DEFAULTS and checked against each other.

    Names may be Kafka's (`linger.ms`), kafka-python's (`linger_ms`) or librdkafka's.
    """
    bootstrap_servers, given = servers_and_settings(bootstrap_servers, overrides)
    schemas = pop_schema_settings(given)
    own = _own_settings(given)
    chosen, origin = _translate(given)
    compression = pop_auto(chosen)
    if "bootstrap.servers" not in chosen:
        chosen["bootstrap.servers"] = addresses(bootstrap_servers)
    else:
        _check_same_servers(bootstrap_servers, chosen["bootstrap.servers"])
    chosen.setdefault("client.id", f"{prefix}-{uuid.uuid4().hex[:8]}")
    explicit = dict(chosen)
    for name, value in DEFAULTS.items():
        chosen.setdefault(name, value)
    _check_values(chosen, origin)
    _drop_contradicting_defaults(chosen, explicit)
    _check(chosen)
    _check_security(chosen)
    if "oauth_cb" in chosen:
        chosen["oauth_cb"] = token_source(chosen["oauth_cb"])
    _check_serializers(own)
    if id_format(own.get(ID_FORMAT_SETTING, DEFAULT_ID_FORMAT)) == "text":
        chosen[ID_FORMAT_KEY] = "text"
    if compression is not None:
        chosen[COMPRESSION_CHOICE_KEY] = compression
    return ClientConfig(
        MappingProxyType(chosen),
        max_block=block_seconds(own.get("max_block_ms", 60_000)),
        value_serializer=own.get("value_serializer"),
        key_serializer=own.get("key_serializer"),
        explicit=frozenset(explicit),
        schemas=schemas,
        rate_limits=rate_limits(own),
    )


def servers_and_settings(
    servers: str | Sequence[str] | Mapping[str, Any], settings: Mapping[str, Any] | str | Path | None
) -> tuple[str | Sequence[str], dict[str, Any]]:
    """Return addresses and settings. As in confluent-kafka, one dict with `bootstrap.servers` can give both.

    The settings may be the path of a file.
    """
    if isinstance(settings, str | Path):
        settings = read_settings(Path(settings))
    try:
        given = dict(settings or {})
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"The settings must be a dict, not {short_repr(settings)}.",
            fix="For example, {'linger.ms': 20}. The path of a file of settings is accepted too.",
        ) from error
    if isinstance(servers, Mapping):
        for name in servers.keys() & given.keys():
            if servers[name] != given[name]:
                raise ConfigError(
                    f"The setting {short_repr(name)} is given twice, with different values.",
                    fix="Keep one.",
                )
        given = {**servers, **given}
        servers = ()
    for name in given:
        if not isinstance(name, str):
            raise ConfigError(
                f"{short_repr(name)} is not a setting name.",
                fix="A name is a string, for example 'linger.ms'.",
            )
    return servers, given


def _check_same_servers(argument: Any, setting: str) -> None:
    """Raise ConfigError if the argument and the setting name different brokers."""
    if argument is None or argument is DEFAULT_SERVERS or (isinstance(argument, Sized) and not len(argument)):
        return
    named = addresses(argument)
    if set(named.split(",")) != set(setting.split(",")):
        raise ConfigError(
            f"The argument names the brokers {named}, and the setting bootstrap.servers names {setting}.",
            fix="Keep one, so that messages cannot go to the wrong cluster.",
        )


def pop_servers(settings: dict[str, Any]) -> Any:
    """Remove the addresses from the settings, under any of their names, and return them; None without any."""
    names = [name for name in settings if isinstance(name, str) and name.replace("_", ".") in _SERVERS]
    values = [settings.pop(name) for name in names]
    return next(filter(None, values), None)


def addresses(servers: str | Sequence[str]) -> str:
    """Return `host:port` addresses in librdkafka's form, from a list or a comma-separated string."""
    if isinstance(servers, bytes | Mapping) or not isinstance(servers, Iterable):
        raise ConfigError(f"{short_repr(servers)} is not an address.", fix=_HOST_PORT)
    listed = servers.split(",") if isinstance(servers, str) else list(servers)
    for part in listed:
        if not isinstance(part, str):
            raise ConfigError(f"The address {short_repr(part)} is not a string.", fix=_HOST_PORT)
    parts = [part.strip() for part in listed]
    parts = [part for part in parts if part]
    if not parts:
        raise ConfigError(
            "No bootstrap server was given.", fix="For example, bootstrap_servers=['localhost:9092']."
        )
    for part in parts:
        _check_address(part)
    return ",".join(parts)


_HOST_PORT = "Write host:port, for example broker1:9092."


def _check_address(address: str) -> None:
    if "@" in address:  # the part before it is a password, and must not be repeated
        raise ConfigError(
            f"{'***' + address[address.rindex('@') :]!r} is not an address: it contains a user or a password.",
            fix="Write host:port, and set sasl_plain_username and sasl_plain_password.",
        )
    found = _ADDRESS.match(address)
    if found is None or not 0 < int(found["port"] or 9092) < 1 << 16:
        raise ConfigError(f"{address!r} is not an address.", fix=_HOST_PORT)


def connection_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that select and authenticate the cluster, for admin and consumer clients.

    Names are librdkafka's. Producing settings are left out because one of them does harm: a client with idempotence
    requests a producer id as soon as it connects, and fails if its user has no WRITE permission.
    """
    return {name: value for name, value in settings.items() if name.startswith(_CONNECTION)}


def masked(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for display: secrets are replaced, callables are left out."""
    shown = {
        name: "***" if _SECRET.search(name) else value
        for name, value in settings.items()
        if not callable(value)
    }
    return shown | ({COMPRESSION_SETTING: AUTO} if COMPRESSION_CHOICE_KEY in settings else {})


def librdkafka_settings(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings under one name each: librdkafka's, or ours. Raise ConfigError for an unknown setting."""
    rest = dict(given)
    own = _own_settings(rest) | pop_registry_settings(rest)
    return {**_translate(rest)[0], **own}


def check_setting(name: str, value: Any) -> None:
    """Raise ConfigError if the value of one setting is not valid, whatever the others are."""
    given = {name: value}
    own = _own_settings(given)
    pop_registry_settings(given)
    chosen, origin = _translate(given)
    pop_auto(chosen)
    _check_values(chosen, origin)
    if (block := own.get("max_block_ms")) is not None:
        block_seconds(block)
    id_format(own.get(ID_FORMAT_SETTING, DEFAULT_ID_FORMAT))


def _own_settings(given: dict[str, Any]) -> dict[str, Any]:
    """Remove the settings that librdkafka does not have, with dots or underscores, and return them."""
    own: dict[str, Any] = {}
    for name in [name for name in given if name.replace(".", "_") in _OWN_SETTINGS]:
        value, plain = given.pop(name), name.replace(".", "_")
        if plain in own and own[plain] != value:
            raise ConfigError(
                f"The setting {plain!r} is given twice, with different values.", fix="Keep one."
            )
        own[plain] = value
    return own


def _translate(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings under librdkafka's names, and for each the name that the user gave."""
    chosen: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in given.items():
        for target, converted in _targets(name, value):
            if converted is None:  # in kafka-python, None means the default
                continue
            if target in chosen and chosen[target] != converted:
                raise ConfigError(
                    f"{origin[target]!r} and {name!r} both set {target}, to different values.",
                    fix="Keep one.",
                )
            chosen[target], origin[target] = converted, name
    if "request.timeout.ms" in chosen:  # kafka-python's setting covers both of librdkafka's
        chosen.setdefault("socket.timeout.ms", chosen["request.timeout.ms"])
        origin.setdefault("socket.timeout.ms", origin["request.timeout.ms"])
    return chosen, origin


def _targets(name: str, value: Any) -> list[tuple[str, Any]]:
    if name in ("buffer_memory", "buffer.memory"):
        return [("queue.buffering.max.kbytes", max(1, _as_int(name, value) // 1024))]
    if name.replace("_", ".") in _SERVERS:
        return [("bootstrap.servers", addresses(value))]
    target = _property_of(name)
    if not name.endswith("_cb") and not knows_property(target):
        raise ConfigError(f"Unknown setting {name!r}.", fix=_ALTERNATIVES.get(name) or _nearest(name))
    if target in CONSUMER_SETTINGS:
        raise ConfigError(f"{name!r} is a setting for consumers.", fix="Leave it out: a producer ignores it.")
    if target == "acks" and text_of(value) == "-1":
        value = "all"
    return [(name if name.endswith("_cb") else target, value)]


def _property_of(name: str) -> str:
    """Return librdkafka's name of a setting, or a name that librdkafka does not know."""
    # librdkafka spells log_level with an underscore
    dotted = name if knows_property(name) else name.replace("_", ".")
    target = NAMES.get(name) or NAMES.get(name.replace("_", ".")) or dotted
    if knows_property(target):
        return target
    # Java's name of a setting that kafka-python spells with underscores
    return NAMES.get(name.replace(".", "_"), target)


def is_setting(name: str) -> bool:
    """Return whether `config` may have a setting of this name."""
    own = name.replace(".", "_") in (*_OWN_SETTINGS, *_CALLBACKS, "buffer_memory")
    return own or knows_property(_property_of(name))


def setting_names() -> list[str]:
    """Return the names of settings that a suggestion may contain."""
    return [*DEFAULTS, *NAMES.values(), "bootstrap.servers", *property_names(), *NAMES, *_OWN_SETTINGS]


def _nearest(name: str) -> str:
    known = setting_names()
    close = difflib.get_close_matches(name.replace("_", "."), known, n=1) or difflib.get_close_matches(
        name, known, n=1
    )
    return f"Did you mean {close[0]!r}?" if close else "See librdkafka's CONFIGURATION.md for the names."


def _drop_contradicting_defaults(chosen: dict[str, Any], explicit: Mapping[str, Any]) -> None:
    """Remove defaults that contradict the user's settings."""
    if "retry.backoff.ms" not in explicit and "retry.backoff.max.ms" in explicit:
        limit = _as_number(chosen, "retry.backoff.max.ms")
        chosen["retry.backoff.ms"] = int(min(chosen["retry.backoff.ms"], limit))
    if not _is_true(chosen["enable.idempotence"]) and "acks" in explicit and str(explicit["acks"]) == "0":
        chosen.pop("request.timeout.ms", None)


def _check_values(chosen: Mapping[str, Any], origin: Mapping[str, str]) -> None:
    """Raise ConfigError for a value that the client rejects, under the name that the user gave."""
    for name, value in chosen.items():
        if callable(value) and name in _CALLBACKS:
            continue
        if callable(value):
            raise ConfigError(
                f"Setting {origin.get(name, name)!r} does not accept a function.",
                fix=_ALTERNATIVES.get(name, "See librdkafka's CONFIGURATION.md for its values."),
            )
        if (rejected := rejection(name, value)) is not None:
            problem = "Its value is not valid" if _SECRET.search(name) else rejected.reason
            given = (
                name if name == "queue.buffering.max.kbytes" else origin.get(name, name)
            )  # bytes as buffer_memory
            raise ConfigError(
                f"Setting {given!r}: {problem}.",
                fix=rejected.fix or _ALTERNATIVES.get(name, "See librdkafka's CONFIGURATION.md."),
            )


_SASL = frozenset({"sasl.mechanism", "sasl.mechanisms"})


def _check_security(chosen: Mapping[str, Any]) -> None:
    """Have librdkafka check what no single setting shows: the mechanism, certificates, a missing password."""
    if "ssl.keystore.location" in chosen and "ssl.keystore.password" not in chosen:
        raise ConfigError(
            "ssl.keystore.location is set, but ssl.keystore.password is not.",
            fix="Set the password too, or set ssl_certfile and ssl_keyfile to PEM files.",
        )
    _check_tokens(chosen)
    protocol = str(chosen.get("security.protocol", "plaintext")).lower()
    if not protocol.startswith("sasl") and (ignored := sorted(_SASL & chosen.keys())):
        raise ConfigError(
            f"{ignored[0]} is set, but security.protocol is {protocol}, so the client would not authenticate.",
            fix="Set security_protocol to SASL_SSL or SASL_PLAINTEXT.",
        )
    if protocol == "plaintext":
        return
    if uses_tokens(chosen):  # a client would request a token
        return
    if (reason := client_refusal(connection_settings(chosen))) is not None:
        raise ConfigError(
            f"The Kafka client rejects these settings: {reason.rstrip('.')}.",
            fix="Check sasl.mechanism, the user, the password and the files that the ssl settings name.",
        )


def uses_tokens(settings: Mapping[str, Any]) -> bool:
    """Return whether the client authenticates with SASL/OAUTHBEARER tokens."""
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl.mechanisms")
    protocol = str(settings.get("security.protocol", "")).lower()
    return protocol.startswith("sasl") and str(mechanism).upper() == "OAUTHBEARER"


def _check_tokens(chosen: Mapping[str, Any]) -> None:
    """Raise ConfigError if a client could not obtain tokens, or would not use them."""
    callback, method = "oauth_cb" in chosen, str(chosen.get("sasl.oauthbearer.method", "default")).lower()
    if not uses_tokens(chosen):
        if callback:
            raise ConfigError(
                "oauth_cb is set, but the client would not authenticate with a token.",
                fix="Set security_protocol to SASL_SSL or SASL_PLAINTEXT, and sasl_mechanism to OAUTHBEARER.",
            )
        return
    if callback and method == "oidc":
        raise ConfigError(
            "oauth_cb and sasl.oauthbearer.method=oidc are two sources of tokens.", fix="Keep one."
        )
    if method == "oidc":
        _check_client_credentials(chosen)
    elif not callback and not _is_true(chosen.get("enable.sasl.oauthbearer.unsecure.jwt", False)):
        raise ConfigError(
            "OAUTHBEARER is set without a source of tokens.",
            fix="Set sasl.oauthbearer.method=oidc, sasl.oauthbearer.client.id, sasl.oauthbearer.client.secret and "
            "sasl.oauthbearer.token.endpoint.url. In Python, oauth_cb is the alternative.",
        )


def _check_client_credentials(chosen: Mapping[str, Any]) -> None:
    """Check the settings of the grant type client_credentials; the client checks those of the others."""
    grant = str(chosen.get("sasl.oauthbearer.grant.type", "client_credentials"))
    metadata = str(chosen.get("sasl.oauthbearer.metadata.authentication.type", "none"))
    if grant != "client_credentials" or metadata != "none":
        return
    credentials = ("client.credentials.client.id", "client.credentials.client.secret", "token.endpoint.url")
    short = {"client.credentials.client.id": "client.id", "client.credentials.client.secret": "client.secret"}
    missing = [
        f"sasl.oauthbearer.{short.get(name, name)}"
        for name in credentials
        if not {f"sasl.oauthbearer.{name}", f"sasl.oauthbearer.{short.get(name, name)}"} & chosen.keys()
    ]
    if missing:
        raise ConfigError(
            f"sasl.oauthbearer.method=oidc needs {join_names(missing)}.",
            fix="Set it in --config-file, so that the secret is not visible in the process list."
            if missing == ["sasl.oauthbearer.client.secret"]
            else "The identity provider has the values.",
        )


def _check_serializers(own: Mapping[str, Any]) -> None:
    for name in ("value_serializer", "key_serializer"):
        if own.get(name) is not None and not callable(own[name]):
            raise ConfigError(
                f"{name}={short_repr(own[name])} is not a function.",
                fix="Pass a function that returns bytes, or 'avro' or 'json' with schema.registry.url.",
            )


def _check(chosen: Mapping[str, Any]) -> None:
    acks, idempotent = str(chosen["acks"]), _is_true(chosen["enable.idempotence"])
    if idempotent and acks != "all":
        raise ConfigError(
            f"acks={acks} conflicts with idempotence: messages not acknowledged by all in-sync replicas can be lost.",
            fix="Use acks='all', or set enable_idempotence=False and accept loss.",
        )
    if idempotent and _as_number({"retries": 1, **chosen}, "retries") == 0:
        raise ConfigError(
            "retries=0 conflicts with idempotence, which needs librdkafka's retries to keep order.",
            fix='Leave retries out. Use ordering="strict" if order matters most; RetryConfig(max_retries=0) disables the producer\'s own resends.',
        )
    if idempotent and _as_number(chosen, "max.in.flight.requests.per.connection") > 5:
        raise ConfigError(
            "More than 5 requests in flight conflict with idempotence: the broker tracks only the last 5 batches.",
            fix="Use max_in_flight_requests_per_connection=5 or less.",
        )
    if _is_true(chosen.get("enable.gapless.guarantee", False)):
        raise ConfigError(
            "enable.gapless.guarantee turns one rejected message into a fatal error for the whole client.",
            fix='Leave it out and use ordering="strict": order is kept, and only the rejected message becomes a dead letter.',
        )
    timeout, linger = _as_number(chosen, "message.timeout.ms"), _as_number(chosen, "linger.ms")
    if timeout and linger >= timeout:
        raise ConfigError(
            f"linger_ms={linger:.0f} is not below delivery_timeout_ms={timeout:.0f}: messages would expire in the batch.",
            fix="Lower linger_ms, or raise delivery_timeout_ms.",
        )
    if "transactional.id" in chosen:
        raise ConfigError(
            "With transactional.id as a setting, nothing would commit the transactions.",
            fix='Leave it out and use delivery="exactly_once"; transactional_id= sets the id.',
        )


def block_seconds(milliseconds: Any) -> float:
    """Return `max_block_ms` in seconds. Raise ConfigError for a value that is not valid."""
    number = _milliseconds(milliseconds)
    if number is None or not number >= 0:
        raise ConfigError(
            f"max_block_ms={short_repr(milliseconds)} must be a number of milliseconds, 0 or more.",
            fix="With 0, send_message raises QueueFull at once when the queue is full.",
        )
    return number / 1000


def _milliseconds(value: Any) -> float | None:
    is_digits = isinstance(value, str) and value.strip().isdigit()  # from a file or the environment
    if isinstance(value, bool) or not (is_digits or isinstance(value, int | float)):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _as_int(name: str, value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{name}={value!r} is not a number.", fix="Use a whole number of bytes.") from error


def _is_true(value: Any) -> bool:
    return str(value).lower() in ("true", "1", "yes", "t")


def _as_number(chosen: Mapping[str, Any], name: str) -> float:
    """Return a setting as a number; librdkafka itself accepts text that only begins with one."""
    try:
        number = float(chosen[name])
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}={chosen[name]!r} is not a number.", fix="Write a whole number.") from error
    if not math.isfinite(number):
        raise ConfigError(f"{name}={chosen[name]!r} is not a number.", fix="Write a whole number.")
    return number
