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
        "NEW_TOKEN_CHECK_FAILED: Broker: unknown to this version",
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
        ("Failed to acquire token: token=abcdef", "Failed to acquire token: token=***"),
        ("DELEGATION_TOKEN: abcdef", "DELEGATION_TOKEN: ***"),
        ("Basic authentication=abcdef", "Basic ***"),
    ],
)
def test_secrets_near_the_name_of_an_error_stay_masked(text, masked):
    assert mask_text(text) == masked


def test_a_field_with_a_secret_name_stays_hidden():
    assert is_secret_name("delegation_token")
    assert is_secret_name("authorization")
    assert not is_secret_name("TOPIC_AUTHORIZATION_FAILED")
