"""Each error code has one row."""

from __future__ import annotations

from producer_core.kafka.classify import known_failures, lookup
from producer_core.kafka.error_codes import NON_PRODUCER_CODES, UNNAMED_CODES
from tests.fixtures.error_names import CODES


def test_every_row_has_a_unique_code():
    rows = [failure.code for failure in known_failures()]
    assert len(rows) == len(set(rows))
    assert set(rows) - set(CODES) - set(UNNAMED_CODES) == {"malformed", "held", "newer_record"}  # own codes


TRANSACTION_CALLS = """
_CONFLICT _DESTROY _FENCED _GAPLESS_GUARANTEE _INCONSISTENT _INVALID_ARG _NOT_CONFIGURED _NO_OFFSET
_OUTDATED _PREV_IN_PROGRESS _IN_PROGRESS _PURGE_QUEUE _STATE _TIMED_OUT _TRANSPORT _UNKNOWN_BROKER
CLUSTER_AUTHORIZATION_FAILED CONCURRENT_TRANSACTIONS COORDINATOR_LOAD_IN_PROGRESS
COORDINATOR_NOT_AVAILABLE FENCED_INSTANCE_ID GROUP_AUTHORIZATION_FAILED ILLEGAL_GENERATION
INVALID_COMMIT_OFFSET_SIZE INVALID_PRODUCER_EPOCH INVALID_PRODUCER_ID_MAPPING
INVALID_TRANSACTION_TIMEOUT INVALID_TXN_STATE NOT_COORDINATOR OFFSET_METADATA_TOO_LARGE
OPERATION_NOT_ATTEMPTED PRODUCER_FENCED REBALANCE_IN_PROGRESS REQUEST_TIMED_OUT
TOPIC_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTION_ABORTABLE
TRANSACTION_COORDINATOR_FENCED UNKNOWN_MEMBER_ID UNKNOWN_PRODUCER_ID UNKNOWN_TOPIC_OR_PART
UNSTABLE_OFFSET_COMMIT UNSUPPORTED_FOR_MESSAGE_FORMAT
"""


def test_every_code_that_a_transaction_call_can_return_has_a_row_for_producers():
    """These are the codes that librdkafka's rdkafka_txnmgr.c uses or forwards from TxnOffsetCommit."""
    codes = TRANSACTION_CALLS.split()
    assert set(codes) & {*NON_PRODUCER_CODES, *UNNAMED_CODES} == set()
    assert {lookup(name).code for name in codes} == set(codes)
