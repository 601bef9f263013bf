"""Exactly-once delivery starts while a part of the cluster does not respond; only a rejection stops it."""

from __future__ import annotations

import pytest

from producer_core.brokers import embedded
from producer_core.config import client_config
from producer_core.errors import BrokerUnreachable
from producer_core.kafka.cluster import Cluster
from producer_core.producer.guarantees import Guarantees
from tests.proxy import BlackHole, FaultProxy, Rule


class Journal:
    session = lasting_id = "a-session"


def test_a_broker_that_hangs_does_not_prevent_the_start_of_an_exactly_once_producer(tmp_path):
    guarantees = Guarantees(delivery="exactly_once", journal_dir=tmp_path)
    with embedded.start(brokers=1, topics={"orders": 1}) as broker, FaultProxy() as proxy:
        broker.advertise(proxy.listen)
        with proxy.during(Rule(BlackHole(), api=("InitProducerId", "FindCoordinator"))):
            config = client_config(proxy.bootstrap_servers)

            guarantees.require(config, Journal(), ())

            with pytest.raises(BrokerUnreachable, match="The permission for transactions cannot be checked"):
                Cluster(config).may_transact("shop-check", timeout=0.5)
