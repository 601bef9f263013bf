"""Masking shows Kafka's errors as they are, although some of their names contain a word for a secret."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from producer_core._internal.error_names import CODES
from producer_core._internal.masking import is_secret_name, mask, mask_text

CODE_RANGE = range(-250, 250)
FORMS = (
    "{name}: {text}",
    "{name}: Unable to produce message: {text}",
    "code={name}, error={text}",
    "{name}={text}",
    '{{"code":"{name}","error":"{text}"}}',
    '{{"{name}":"{text}"}}',
    "{text}",
    "most recently: {name}: {text}. New messages are refused.",
)


@pytest.fixture(scope="module")
def errors():
    found = [KafkaError(code) for code in CODE_RANGE]
    return [(error.name(), error.str()) for error in found if "UNKNOWN_ERR" not in error.name()]


@pytest.mark.parametrize("form", FORMS)
def test_every_error_of_librdkafka_is_shown_unchanged(errors, form):
    texts = [form.format(name=name, text=text) for name, text in errors]

    assert len(texts) > 150
    assert [text for text in texts if mask_text(text) != text] == []


def test_the_list_of_codes_is_that_of_librdkafka(errors):
    assert {name for name, _ in errors} >= CODES


def test_counts_by_error_code_are_shown():
    counts = {"TOPIC_AUTHORIZATION_FAILED": 3, "UNACCEPTABLE_CREDENTIAL": 1}

    assert mask(counts) == counts
    assert mask([["GROUP_AUTHORIZATION_FAILED", "orders"]]) == [["GROUP_AUTHORIZATION_FAILED", "orders"]]


@pytest.mark.parametrize(
    "text",
    [
        "TopicAuthorizationException: Not authorized to access topics: [orders]",
        "org.apache.kafka.common.errors.DelegationTokenExpiredException: The token has expired",
        "TokenExpiredError: the signature is too old",
        "HTTP 401: Basic authentication is required.",
        "Failed to acquire SASL OAUTHBEARER token: connection refused",
        "kafka.errors.TopicAuthorizationFailedError: [Error 29] TopicAuthorizationFailedError: {'orders'}",
        "SASL_AUTHENTICATION_FAILED: Broker: SASL Authentication failed",
        "SASL authentication error: Failed to authenticate user kafka (after 3ms in state AUTH_REQ)",
        "Unable to produce message: Topic authorization failed",
        "Unable to authenticate: invalid credentials supplied",
        "OAUTHBEARER cannot log in because there is no token available; last error: timed out",
        "Failed to create a token: signing failed: unknown algorithm",
        "Failed to parse JSON token: error code: 3, error string: unexpected end",
        "Must supply an unexpired token: now=17ms, exp=5ms",
    ],
)
def test_other_ordinary_errors_are_shown_unchanged(text):
    assert mask_text(text) == text


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Authorization: Token abcdef", "Authorization: Token ***"),
        ("Authorization: ApiKey abcdef", "Authorization: ApiKey ***"),
        ("authorization=abcdef", "authorization=***"),
        ("X-Authorization-Failed: abcdef", "X-Authorization-Failed: ***"),
        ("TOPIC_AUTHORIZATION_FAILED: password=hunter2", "TOPIC_AUTHORIZATION_FAILED: password=***"),
        ("TOPIC_AUTHORIZATION_FAILED: password: hunter2 x", "TOPIC_AUTHORIZATION_FAILED: password: *** x"),
        ("TOPIC_AUTHORIZATION_FAILED=token=hunter2,a", "TOPIC_AUTHORIZATION_FAILED=token=***,a"),
        ("TokenExpiredError: api_key hunter2, secret: x", "TokenExpiredError: api_key hunter2, secret: ***"),
        ("Failed to acquire token: token=abcdef", "Failed to acquire token: ***"),
        (
            "Failed to acquire SASL OAUTHBEARER token: token=abcdef",
            "Failed to acquire SASL OAUTHBEARER token: token=***",
        ),
        ("failed to parse user bob password=hunter2", "failed to parse user bob password=***"),
        ("Failed to create api_key: hunter2", "Failed to create api_key: ***"),
        ("Failed to parse client secret: hunter2", "Failed to parse client secret: ***"),
        ("failed to parse token: hunter2", "failed to parse token: ***"),
        ("Must supply an unexpired token: hunter2", "Must supply an unexpired token: ***"),
        ("unFailed to create a token=hunter2", "unFailed to create a token=***"),
        ("Failed to acquire SASL OAUTHBEARER token=hunter2", "Failed to acquire SASL OAUTHBEARER token=***"),
        ("DB_PASSWORD_FAILED=hunter2", "DB_PASSWORD_FAILED=***"),
        ("NEW_TOKEN_CHECK_FAILED: hunter2", "NEW_TOKEN_CHECK_FAILED: ***"),
        ("DB_TOPIC_AUTHORIZATION_FAILED=hunter2", "DB_TOPIC_AUTHORIZATION_FAILED=***"),
        ("passwordError: hunter2", "passwordError: ***"),
        ("TokenExpiredError=hunter2", "TokenExpiredError=***"),
        ('{"tokenError":"hunter2"', '{"tokenError":***'),
        ("SASL_AUTHENTICATION_FAILED: password=hunter2", "SASL_AUTHENTICATION_FAILED: password=***"),
        ("Failed to authenticate bob: token: hunter2", "Failed to authenticate bob: token: ***"),
        ("Unable to log in with secret=hunter2", "Unable to log in with secret=***"),
        ("Failed to create a token: hunter2", "Failed to create a token: ***"),
        (
            "Failed to create a token: abc: client_secret=x",
            "Failed to create a token: abc: client_secret=***",
        ),
        ("password_file.TokenExpired: hunter2", "password_file.TokenExpired: ***"),
        ("DELEGATION_TOKEN: abcdef", "DELEGATION_TOKEN: ***"),
        ("Basic authentication=abcdef", "Basic ***"),
    ],
)
def test_secrets_near_the_name_of_an_error_stay_masked(text, masked):
    assert mask_text(text) == masked


@pytest.mark.parametrize(
    "name",
    ["PASSWORD_FAILED", "tokenError", "db_password_error", "TokenExpiredError", "NEW_TOKEN_CHECK_FAILED"],
)
def test_a_field_whose_name_only_looks_like_an_error_is_hidden(name):
    assert is_secret_name(name)
    assert mask({name: "hunter2"}) == {name: "***"}
    assert mask(f'{{"{name}":"hunter2"}}') == f'{{"{name}":"***"}}'


def test_a_field_with_a_secret_name_stays_hidden():
    assert is_secret_name("delegation_token")
    assert is_secret_name("authorization")
    assert not is_secret_name("TOPIC_AUTHORIZATION_FAILED")
