"""Client settings become options of Spark's Kafka source."""

from __future__ import annotations

from pathlib import Path

import certifi
import pytest

from producer_core.config import client_config
from producer_core.errors import ConfigError
from producer_core.pipeline.kafka_options import kafka_options


def options(**settings):
    return kafka_options(client_config("h:1", settings))


def test_a_password_is_passed_as_a_jaas_configuration():
    ca = Path(certifi.where())
    found = options(
        security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_plain_username="app",
        sasl_plain_password='a"b\\c', ssl_cafile=str(ca),
    )  # fmt: skip

    assert found["kafka.sasl.jaas.config"].endswith('required username="app" password="a\\"b\\\\c";')
    assert found["kafka.ssl.truststore.certificates"] == ca.read_text()
    assert found["kafka.security.protocol"] == "SASL_SSL"
    assert found["kafka.bootstrap.servers"] == "h:1"


def test_a_setting_that_javas_client_lacks_is_rejected():
    with pytest.raises(ConfigError, match=r"enable\.ssl\.certificate\.verification"):
        options(enable_ssl_certificate_verification=False)


def test_producer_and_socket_settings_are_ignored():
    assert options(linger_ms=50, socket_keepalive_enable=True) == {"kafka.bootstrap.servers": "h:1"}


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ({"oauth_cb": lambda _: ("geheim", 4e9)}, "oauth_cb"),
        (
            {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "orders",
                "sasl.oauthbearer.client.secret": "geheim",
                "sasl.oauthbearer.token.endpoint.url": "https://idp.example/token",
            },
            "sasl.oauthbearer.token.endpoint.url",
        ),
    ],
)
def test_tokens_are_refused_by_name_and_without_the_secret(source, named):
    config = client_config(
        "a:1", {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", **source}
    )
    with pytest.raises(ConfigError, match="Spark's Kafka client does not support") as raised:
        kafka_options(config)
    assert named in str(raised.value)
    assert "geheim" not in str(raised.value)
