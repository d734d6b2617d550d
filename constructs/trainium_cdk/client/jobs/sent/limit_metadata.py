"""The instance metadata service must answer within seconds.

Pods and nodes may not reach it. Scripts ask it for the instance type without a time limit. Where packets are dropped, Linux tries for
127 s to connect (tcp(7): tcp_syn_retries) while all nodes wait for the first one; with a hop limit of 1, a container can connect, and its
request for a token is never answered.
"""

import socket
import weakref
from typing import Any

SERVICE = ("169.254.169.254", "fd00:ec2::254")
"""Its addresses (EC2 user guide, 2026-11)."""
SECONDS = 2.0


def apply() -> None:
    plain: Any = socket.socket  # patched for every library that uses sockets
    connect, settimeout = plain.connect, plain.settimeout
    asking: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def limited_connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] in SERVICE:
            asking.add(self)
            self.settimeout(self.gettimeout())
        connect(self, address)

    def limited_settimeout(self: socket.socket, seconds: float | None) -> None:
        # urllib3 sets the limit, or none, again before it reads the response
        if self in asking:
            seconds = SECONDS if seconds is None else min(seconds, SECONDS)
        settimeout(self, seconds)

    plain.connect, plain.settimeout = limited_connect, limited_settimeout
