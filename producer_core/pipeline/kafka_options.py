"""Translate librdkafka's client settings into options of Spark's connector: Java's names with the prefix `kafka.`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from producer_core._internal.join_names import join_names
from producer_core.config import ClientConfig, connection_settings
from producer_core.errors import ConfigError

_SAME = ("bootstrap.servers", "security.protocol", "sasl.mechanism", "client.dns.lookup")
_TRANSLATED = ("sasl.username", "sasl.password", "ssl.ca.location", "ssl.certificate.location", "ssl.key.location",
         "ssl.key.password", "ssl.endpoint.identification.algorithm")  # fmt: skip
_IGNORED = ("socket.", "broker.address.", "reconnect.", "ssl.providers")
"""librdkafka's socket settings; Java's client has its own defaults."""
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def kafka_options(config: ClientConfig) -> dict[str, str]:
    """Return options with which Spark reads from or writes to the same cluster as `config`.

    Raises ConfigError for settings that Java's client does not have. The options contain secrets: never show them.
    """
    given = connection_settings(config.settings)
    options = {name: str(given[name]) for name in _SAME if name in given}
    options.update(_sasl(given))
    options.update(_tls(given))
    unknown = [name for name in given if name not in (*_SAME, *_TRANSLATED) and not name.startswith(_IGNORED)]
    if unknown:
        raise ConfigError(
            f"Spark's Kafka client does not support {join_names(sorted(unknown), 'or')}.",
            fix="Use SASL (PLAIN, SCRAM) or TLS with PEM files: sasl.username, ssl.ca.location, ssl.key.location.",
        )
    return {f"kafka.{name}": value for name, value in options.items()}


def _sasl(given: Mapping[str, Any]) -> dict[str, str]:
    if "sasl.username" not in given:
        return {}
    mechanism = str(given.get("sasl.mechanism", "")).upper()
    if mechanism not in _LOGIN:
        raise ConfigError(
            f"Spark's Kafka client cannot authenticate with sasl.mechanism={mechanism or '(none)'} and a password.",
            fix=f"Use {join_names(_LOGIN, 'or')}.",
        )
    user, password = (_quoted(str(given.get(f"sasl.{part}", ""))) for part in ("username", "password"))
    return {"sasl.jaas.config": f"{_LOGIN[mechanism]} required username={user} password={password};"}


def _quoted(text: str) -> str:
    """Quote a value for a JAAS configuration."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tls(given: Mapping[str, Any]) -> dict[str, str]:
    options: dict[str, str] = {}
    if "ssl.ca.location" in given:
        options |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": _text(given["ssl.ca.location"]),
        }
    if "ssl.certificate.location" in given and "ssl.key.location" in given:
        options |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": _text(given["ssl.certificate.location"]),
            "ssl.keystore.key": _text(given["ssl.key.location"]),
        }
        if "ssl.key.password" in given:
            options["ssl.key.password"] = str(given["ssl.key.password"])
    if str(given.get("ssl.endpoint.identification.algorithm")) == "none":
        options["ssl.endpoint.identification.algorithm"] = ""
    return options


def _text(path: Any) -> str:
    try:
        return Path(str(path)).read_text()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.", fix="Specify a PEM file.") from error
