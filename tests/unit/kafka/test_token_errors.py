"""The causes of a failed login with a token."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core.kafka.token_errors import is_refusal, is_temporary, token_unavailable

FAILED = "Failed to acquire SASL OAUTHBEARER token: "
ENDPOINT = "sasl.oauthbearer.token.endpoint.url"


def authentication(text):
    return KafkaError(KafkaError._AUTHENTICATION, text)


@pytest.mark.parametrize(
    ("text", "refusal", "temporary"),
    [
        (FAILED + '{"error": "invalid_client"}', True, False),
        (FAILED + '{"error": "invalid_scope"}', True, False),
        (FAILED + '{"error": "temporarily_unavailable"}', False, True),
        (FAILED + "Failed to connect to localhost:1", False, True),
        (FAILED + "OAuth callback raised exception", False, True),
        ("No token was obtained: oauth_cb returned None", False, True),
        ('No token was obtained: oauth_cb raised HTTPError: {"error": "invalid_grant"}', False, True),
        ('SASL authentication error: {"status":"invalid_token"}', False, False),
    ],
)
def test_only_a_failure_of_the_source_of_tokens_is_temporary(text, refusal, temporary):
    error = authentication(text)
    assert (is_refusal(error), is_temporary(error)) == (refusal, temporary)


@pytest.mark.parametrize(
    ("text", "expected", "fix"),
    [
        ('{"error": "invalid_client"}', "refused the credentials", "client.secret"),
        (
            "Failed to connect to localhost:1",
            "did not provide a token: Failed to connect",
            "token.endpoint.url",
        ),
    ],
)
def test_the_error_names_the_endpoint_and_the_setting_to_check(text, expected, fix):
    settings = {ENDPOINT: "https://me:geheim@idp.example:8443/token?client_secret=geheim"}
    error = token_unavailable(authentication(FAILED + text), settings)
    assert f"https://idp.example:8443/token {expected}" in error.what
    assert fix in error.fix
    assert "geheim" not in str(error)


def test_the_error_of_a_callback_points_to_its_log_line():
    error = token_unavailable(authentication(FAILED + "OAuth callback raised exception"), {"oauth_cb": print})
    assert error.what == "No token was obtained: oauth_cb failed."
    assert "log" in error.fix
