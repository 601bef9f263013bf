"""Free ports on the loopback address, below the range that outgoing connections take theirs from."""

from __future__ import annotations

import random
import socket
from collections.abc import Sequence

from producer_core.errors import BrokerError

_RANGE = range(20000, 32000)  # Linux gives 32768 and up to clients, which would keep a restarted broker out


def free_ports(count: int, *, wanted: Sequence[int] = ()) -> list[int]:
    """`count` ports: those wanted first (BrokerError when one is taken), the rest found at random."""
    for port in wanted:
        if not _free(port):
            raise BrokerError(f"Port {port} is taken.", fix="Choose another one, or leave the choice to us.")
    ports = list(wanted)
    for port in random.sample(_RANGE, len(_RANGE)):  # spreads parallel runs, nothing secret
        if len(ports) >= count:
            break
        if port not in ports and _free(port):
            ports.append(port)
    return ports[:count]


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # as the broker does: TIME_WAIT is no owner
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
