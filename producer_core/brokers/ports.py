"""Find free ports on the loopback address, below the range of outgoing connections."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from producer_core.errors import BrokerError

# Linux gives clients 32768 and up, which could take the port of a stopped broker
_RANGE = range(20000, 32000)


def free_ports(count: int, *, wanted: Sequence[int] = ()) -> list[int]:
    """Return `count` ports: first the wanted ones (BrokerError when one is in use), then random free ones."""
    for port in wanted:
        if not _free(port):
            raise BrokerError(f"Port {port} is in use.", fix="Choose another port, or omit it.")
    ports = list(wanted)
    for port in random.sample(_RANGE, len(_RANGE)):  # spreads parallel runs; not a secret
        if len(ports) >= count:
            break
        if port not in ports and _free(port):
            ports.append(port)
    return ports[:count]


def _free(port: int) -> bool:
    with socket.socket() as probe:
        # As the broker does: a port in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
