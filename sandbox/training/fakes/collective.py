"""Sums over all processes of a job, bit-identical on each: over TCP."""

from __future__ import annotations

import operator
import os
import socket
import struct
import time
from array import array
from typing import Protocol

_HEAD = struct.Struct("!Q")
_CONNECT_SECONDS = 120.0
_STEP_SECONDS = 600.0


class PeerLost(ConnectionError):
    """The connection to another process of the job was lost."""


class Collective(Protocol):
    """The processes of a job. All of them call every method, in the same order."""

    rank: int
    world: int
    kind: str

    def all_reduce(self, values: array[float]) -> array[float]:
        """The element-wise sum over all processes."""

    def gather(self, data: bytes) -> list[bytes]:
        """The data of all processes, in rank order, on every process."""

    def close(self) -> None: ...


def connect(rank: int, world: int, address: str, port: int, listener: socket.socket | None) -> Collective:
    """Join the job's processes.

    Args:
        rank: 0 to world - 1.
        world: number of processes.
        address: rank 0's address.
        port: rank 0's port.
        listener: on rank 0, the listening socket.

    Raises:
        PeerLost: not all processes connected in time.
    """
    if world == 1:
        return Alone()
    return TcpStar(rank, world, address, port, listener)


class Alone:
    """A job of one process."""

    rank, world, kind = 0, 1, "one process"

    def all_reduce(self, values: array[float]) -> array[float]:
        return values

    def gather(self, data: bytes) -> list[bytes]:
        return [data]

    def close(self) -> None:
        return


class TcpStar:
    """Rank 0 collects from all and sends the sum back. It adds in rank order, so that runs are bit-identical."""

    kind = "TCP all-reduce through rank 0"

    def __init__(self, rank: int, world: int, address: str, port: int, listener: socket.socket | None):
        self.rank, self.world = rank, world
        self._peers: dict[int, socket.socket] = {}
        if rank == 0:
            assert listener is not None  # noqa: S101  rank 0 opened it before it announced its port
            self._accept(listener)
        else:
            self._peers[0] = _reach(address, port)
            self._send(0, str(rank).encode())

    def _accept(self, listener: socket.socket) -> None:
        listener.settimeout(_CONNECT_SECONDS)
        with listener:
            while len(self._peers) < self.world - 1:
                try:
                    peer, _ = listener.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, self.world)) - set(self._peers))
                    raise PeerLost(f"ranks {missing} did not join within {_CONNECT_SECONDS:.0f} s") from None
                _prepare(peer)
                self._peers[-1] = peer
                rank = int(self._receive(-1))
                self._peers[rank] = self._peers.pop(-1)

    def all_reduce(self, values: array[float]) -> array[float]:
        if self.rank != 0:
            self._send(0, values.tobytes())
            return array("d", self._receive(0))
        total = values
        for rank in range(1, self.world):
            total = array("d", map(operator.add, total, array("d", self._receive(rank))))
        for rank in range(1, self.world):
            self._send(rank, total.tobytes())
        return total

    def gather(self, data: bytes) -> list[bytes]:
        if self.rank == 0:
            every = [data, *(self._receive(rank) for rank in range(1, self.world))]
            packed = b"".join(_HEAD.pack(len(item)) + item for item in every)
            for rank in range(1, self.world):
                self._send(rank, packed)
            return every
        self._send(0, data)
        packed, every = self._receive(0), []
        while packed:
            (size,) = _HEAD.unpack_from(packed)
            every.append(packed[_HEAD.size : _HEAD.size + size])
            packed = packed[_HEAD.size + size :]
        return every

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    def _send(self, rank: int, data: bytes) -> None:
        try:
            self._peers[rank].sendall(_HEAD.pack(len(data)) + data)
        except OSError as error:
            raise PeerLost(f"Call to send to rank {rank} failed : {error.strerror or error}") from None

    def _receive(self, rank: int) -> bytes:
        try:
            return self._exactly(rank, _HEAD.unpack(self._exactly(rank, _HEAD.size))[0])
        except OSError as error:
            raise PeerLost(f"Call to recv from rank {rank} failed : {error.strerror or error}") from None

    def _exactly(self, rank: int, size: int) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            part = self._peers[rank].recv(size - len(parts))
            if not part:
                raise OSError("Broken pipe")
            parts += part
        return bytes(parts)


def _reach(address: str, port: int) -> socket.socket:
    end = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=5)
        except OSError as error:
            if time.monotonic() > end:
                raise PeerLost(f"cannot reach rank 0 at {address}:{port}: {error}") from None
            time.sleep(0.1)
            continue
        _prepare(peer)
        return peer


def _prepare(peer: socket.socket) -> None:
    peer.settimeout(_STEP_SECONDS)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def from_environment() -> Collective:
    """The job in RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT (without torchrun: a job with one process).

    Rank 0 gets its listening socket in TRN_LISTEN_FD.
    """
    fd = os.environ.get("TRN_LISTEN_FD")
    listener = socket.socket(fileno=int(fd)) if fd else None
    return connect(
        int(os.environ.get("RANK", "0")),
        int(os.environ.get("WORLD_SIZE", "1")),
        os.environ.get("MASTER_ADDR", "127.0.0.1"),
        int(os.environ.get("MASTER_PORT", "0")),
        listener,
    )
