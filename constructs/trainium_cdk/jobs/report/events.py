"""Event files of TensorBoard: records of TFRecord, each a protocol buffer `Event` (tensorflow/core/util/event.proto).
Written here, as the packages that write them bring numpy, protobuf and gRPC.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import BinaryIO

_POLYNOMIAL = 0x82F63B78
"""CRC-32C, reversed."""


class EventWriter:
    """Writes scalars to a file whose name TensorBoard recognises by `tfevents`."""

    def __init__(self, file: BinaryIO, time: float):
        self._file = file
        self._record(_double(1, time) + _bytes(3, b"brain.Event:2"))

    def scalar(self, tag: str, value: float, step: int, time: float) -> None:
        """One value of a curve; `time` in seconds since 1970."""
        summary = _bytes(1, _bytes(1, tag.encode()) + _key(2, 5) + struct.pack("<f", value))
        self._record(_double(1, time) + _key(2, 0) + _varint(step) + _bytes(5, summary))

    def _record(self, event: bytes) -> None:
        length = struct.pack("<Q", len(event))
        self._file.write(length + _checksum(length) + event + _checksum(event))


def _key(field: int, kind: int) -> bytes:
    return _varint(field << 3 | kind)


def _double(field: int, value: float) -> bytes:
    return _key(field, 1) + struct.pack("<d", value)


def _bytes(field: int, value: bytes) -> bytes:
    return _key(field, 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*made, value])


@cache
def _table() -> tuple[int, ...]:
    found = []
    for i in range(256):
        value = i
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        found.append(value)
    return tuple(found)


def _checksum(data: bytes) -> bytes:
    """The masked CRC-32C of a TFRecord."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ value >> 8
    value ^= 0xFFFFFFFF
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)
