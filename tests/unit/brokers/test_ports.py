"""Free ports on the loopback address."""

from __future__ import annotations

import socket

import pytest

from producer_core.brokers.ports import free_ports
from producer_core.errors import BrokerError


def test_ports_are_distinct_and_below_the_range_of_outgoing_connections():
    ports = free_ports(9)

    assert len(set(ports)) == 9
    assert all(20_000 <= port < 32_000 for port in ports)
    assert free_ports(0) == []


def test_requested_ports_come_first():
    first, second = free_ports(2)

    assert free_ports(3, wanted=[second, first])[:2] == [second, first]


def test_a_requested_port_in_use_is_refused():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"Port {port} is in use"):
            free_ports(1, wanted=[port])
