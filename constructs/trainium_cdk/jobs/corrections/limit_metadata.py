"""The instance metadata service must answer within seconds.

Pods and nodes may not reach it. Scripts ask it for the instance type without a time limit, and where packets are dropped, Linux
tries for 127 s to connect (tcp(7): tcp_syn_retries) while all nodes wait for the first one.
"""

import socket
from typing import Any

SERVICE = ("169.254.169.254", "fd00:ec2::254")
"""Its addresses (EC2 user guide, 2026-11)."""
SECONDS = 2.0


def apply() -> None:
    plain: Any = socket.socket  # `connect` is patched for every library that uses sockets
    connect = plain.connect

    def limited(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] in SERVICE:
            self.settimeout(min(self.gettimeout() or SECONDS, SECONDS))
        connect(self, address)

    plain.connect = limited
