"""The guarantee of a replay: exactly once where the cluster and the permissions allow it."""

from __future__ import annotations

import pytest

from producer_core.errors import BrokerUnreachable
from producer_core.kafka.acls import Permission
from producer_core.replay import guarantee
from producer_core.replay.guarantee import EMBEDDED, UNKNOWN, ReplayGuarantee, replay_guarantee


@pytest.fixture
def permissions(monkeypatch):
    """Set the missing permissions, or the error from the brokers."""

    def answer(found):
        def check(*arguments, **options):
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(guarantee.acls, "check", check)

    return answer


@pytest.mark.parametrize(
    ("cluster", "known"), [("embedded-1", True), ("mockCluster1", True), ("lkc-1", False)]
)
def test_an_embedded_broker_has_no_transactions_and_never_compacts(permissions, cluster, known):
    permissions([])

    assert guarantee.never_compacts(cluster) is known
    expected = ReplayGuarantee("at_least_once", EMBEDDED) if known else ReplayGuarantee("exactly_once")
    assert replay_guarantee(None, ["orders"], cluster) == expected
    assert (guarantee.guarantee_from_cluster_id(cluster) == UNKNOWN) is not known


def test_a_missing_permission_is_named(permissions):
    missing = Permission("transactional_id", "producer-core-replay-", "WRITE")
    permissions([missing])

    assert replay_guarantee(None, ["orders"], "lkc-1") == ReplayGuarantee(
        "at_least_once", f"the sending client lacks {missing}"
    )


def test_the_guarantee_is_unknown_if_no_broker_responds(permissions):
    permissions(BrokerUnreachable("No broker answered."))

    assert replay_guarantee(None, ["orders"], "lkc-1") == UNKNOWN
