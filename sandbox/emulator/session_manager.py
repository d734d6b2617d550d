"""Session Manager's data channels, for AWS's own session-manager-plugin: a WebSocket at 127.0.0.1 for each session, and the agent behind it.

Each message is a header of 120 bytes and a payload, in order of their sequence numbers, and is acknowledged (session-manager-plugin,
src/message and src/datachannel). A handshake tells the plugin which kind of session it is. A forwarded port carries the frames of smux,
version 1: any number of connections (src/sessionmanagerplugin/session/portsession/muxportforwarding.go); a shell or a command has a terminal.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import pty
import secrets
import signal
import struct
import subprocess
import termios
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    Request,
    TextMessage,
)

AGENT_VERSION = "3.3.3050.0"
"""Version of an agent that forwards many connections of one port, without its own signs of life (src/config/config.go: after 3.1.1511.0)."""
OUTPUT, ERROR, SIZE, HANDSHAKE_REQUEST, HANDSHAKE_RESPONSE, HANDSHAKE_COMPLETE, FLAG = 1, 2, 3, 5, 6, 7, 10
TERMINATE_SESSION, CONNECT_TO_PORT_ERROR = 2, 3
SYN, FIN, DATA, NOP = range(4)
_HEADER = struct.Struct(">I32sIQqQ16s32sII")
_FRAME = struct.Struct("<BBHI")
_MOST = 1024
"""Bytes of a payload, as the plugin's own."""
_AGAIN_SECONDS = 0.2
"""Until a message that was not acknowledged is sent again: the plugin ignores output that comes before it is ready."""

_GRACE_SECONDS = 10.0
"""That a program has to end after its terminal hung up."""


@dataclass
class Session:
    """What StartSession was asked for.

    Attributes:
        target: the instance's id; `document`: the name of the session's.
        kind: session type of the plugin's: `Port`, `Standard_Stream` or `InteractiveCommands`.
        properties: of the session's document, for the plugin; for `Port` with `host` and `portNumber`.
        command: makes the program of a shell or a command: words, environment, folder. Raises OSError or ValueError with the reason.
    """

    target: str
    document: str
    kind: str
    properties: dict[str, Any]
    command: Callable[[], tuple[list[str], dict[str, str], str | None]]
    id: str = field(default_factory=lambda: f"sandbox-{secrets.token_hex(8)}")
    token: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    channel: _Channel | None = None


class Gateway:
    """All data channels of an emulator: one port, on an event loop of its own thread."""

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="session-manager").start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop)
        self._port = int(started.result().sockets[0].getsockname()[1])

    def add(self, session: Session) -> str:
        """Its address, with the id that the channel's path ends with."""
        self.sessions[session.id] = session
        return f"ws://127.0.0.1:{self._port}/v1/data-channel/{session.id}?role=publish_subscribe"

    def end(self, id: str) -> bool:
        """End a session and its channel; whether it was there."""
        session = self.sessions.pop(id, None)
        if session and session.channel:
            asyncio.run_coroutine_threadsafe(session.channel.close(), self._loop).result(timeout=30)
        return session is not None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        socket = WSConnection(ConnectionType.SERVER)
        channel: _Channel | None = None
        try:
            while data := await reader.read(65536):
                socket.receive_data(data)
                for event in socket.events():
                    if isinstance(event, Request):
                        session = self.sessions.get(event.target.partition("?")[0].rpartition("/")[2])
                        if session is None or session.channel:
                            writer.write(socket.send(RejectConnection(status_code=403)))
                            return
                        writer.write(socket.send(AcceptConnection()))
                        channel = session.channel = _Channel(session, socket, writer, self)
                    elif isinstance(event, CloseConnection):
                        writer.write(socket.send(event.response()))
                        return
                    elif isinstance(event, Ping):
                        writer.write(socket.send(event.response()))
                    elif channel:
                        await channel.receive(event)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            if channel:
                await channel.end()
            writer.close()


class _Channel:
    """One connection of the plugin."""

    def __init__(self, session: Session, socket: WSConnection, writer: asyncio.StreamWriter, gateway: Gateway) -> None:
        self.session, self._socket, self._writer, self._gateway = session, socket, writer, gateway
        self._text, self._data = "", b""
        self._sequence, self._expected = 0, 0
        self._unacknowledged: dict[int, tuple[float, bytes]] = {}
        self._opened = False
        self._agent: _Ports | _Terminal | None = None
        self._repeating: asyncio.Task[None] | None = None

    async def receive(self, event: Event) -> None:
        if isinstance(event, TextMessage):
            self._text += event.data
            if event.message_finished:
                text, self._text = self._text, ""
                await self._open(json.loads(text))
        elif isinstance(event, BytesMessage):
            self._data += event.data
            if event.message_finished:
                data, self._data = self._data, b""
                await self._message(data)

    async def _open(self, request: dict[str, Any]) -> None:
        """The plugin's first message has the session's token."""
        required = {"MessageSchemaVersion", "RequestId", "TokenValue", "ClientId", "ClientVersion"}
        if request.keys() != required or request["TokenValue"] != self.session.token:
            await self.close("the token of the session is not valid")
            return
        self._opened = True
        self._repeating = asyncio.create_task(self._repeat())
        action = {"SessionType": self.session.kind, "Properties": self.session.properties}
        actions = [{"ActionType": "SessionType", "ActionParameters": action}]
        await self.send(HANDSHAKE_REQUEST, {"AgentVersion": AGENT_VERSION, "RequestedClientActions": actions})

    async def _message(self, data: bytes) -> None:
        length, kind, _, _, sequence, _, id, digest, payload_type, size = _HEADER.unpack_from(data)
        payload = data[_HEADER.size :]
        if (
            not self._opened
            or length != _HEADER.size - 4
            or size != len(payload)
            or hashlib.sha256(payload).digest() != digest
        ):
            await self.close("a message has an error")
            return
        match kind.strip(b" \0"):
            case b"acknowledge":
                self._unacknowledged.pop(json.loads(payload)["AcknowledgedMessageSequenceNumber"], None)
            case b"input_stream_data":
                received = {
                    "AcknowledgedMessageType": "input_stream_data", "AcknowledgedMessageId": str(uuid.UUID(bytes=id[8:] + id[:8])),
                    "AcknowledgedMessageSequenceNumber": sequence, "IsSequentialMessage": True,
                }  # fmt: skip
                await self._write("acknowledge", 0, json.dumps(received).encode(), sequence=0, flags=3)
                if sequence == self._expected:  # a smaller one was sent again; none comes early through one connection
                    self._expected += 1
                    await self._input(payload_type, payload)

    async def _input(self, payload_type: int, payload: bytes) -> None:
        if payload_type == HANDSHAKE_RESPONSE:
            done = json.loads(payload)
            if done.get("Errors") or [one["ActionStatus"] for one in done["ProcessedClientActions"]] != [1]:
                await self.close(f"the handshake failed: {done.get('Errors')}")
                return
            await self.send(HANDSHAKE_COMPLETE, {"HandshakeTimeToComplete": 1_000_000, "CustomerMessage": ""})
            self._agent = _Ports(self) if self.session.kind == "Port" else _Terminal(self)
            await self._agent.start()
        elif payload_type == FLAG and int.from_bytes(payload) == TERMINATE_SESSION:
            await self.close()
        elif self._agent:
            await self._agent.receive(payload_type, payload)

    async def send(self, payload_type: int, payload: bytes | dict[str, Any]) -> None:
        """Send a message to the plugin, again and again until it is acknowledged."""
        content = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        sequence, self._sequence = self._sequence, self._sequence + 1
        message = await self._write("output_stream_data", payload_type, content, sequence=sequence)
        self._unacknowledged[sequence] = (time.monotonic(), message)

    async def _write(self, kind: str, payload_type: int, payload: bytes, *, sequence: int, flags: int = 0) -> bytes:
        id, now = uuid.uuid4().bytes, int(time.time() * 1000)
        header = (_HEADER.size - 4, kind.encode().ljust(32), 1, now, sequence, flags, id[8:] + id[:8])
        message = _HEADER.pack(*header, hashlib.sha256(payload).digest(), payload_type, len(payload)) + payload
        await self._transmit(message)
        return message

    async def _transmit(self, message: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(self._socket.send(BytesMessage(data=message)))
            await self._writer.drain()

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(_AGAIN_SECONDS)
            for sequence, (sent, message) in sorted(self._unacknowledged.items()):
                if time.monotonic() - sent >= _AGAIN_SECONDS:
                    self._unacknowledged[sequence] = (time.monotonic(), message)
                    await self._transmit(message)

    async def close(self, output: str = "") -> None:
        """End the session; the plugin prints the reason."""
        self._gateway.sessions.pop(self.session.id, None)
        closed = {
            "MessageId": str(uuid.uuid4()), "CreatedDate": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "DestinationId": "",
            "SessionId": self.session.id, "MessageType": "channel_closed", "SchemaVersion": 1, "Output": output,
        }  # fmt: skip
        await self._write("channel_closed", 0, json.dumps(closed).encode(), sequence=0)
        await self.end()

    async def end(self) -> None:
        """Stop what runs for the session."""
        if self._repeating:
            self._repeating.cancel()
        agent, self._agent = self._agent, None
        if agent:
            await agent.stop()


class _Ports:
    """The agent's end of a forwarded port: a connection to the host for each stream of the plugin's multiplexer."""

    def __init__(self, channel: _Channel) -> None:
        self._channel, self._data = channel, b""
        self._streams: dict[int, asyncio.StreamWriter] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Nothing is connected before the first stream."""

    async def receive(self, payload_type: int, payload: bytes) -> None:
        if payload_type != OUTPUT:
            return
        self._data += payload
        while len(self._data) >= _FRAME.size:
            version, command, length, stream = _FRAME.unpack_from(self._data)
            if version != 1:
                await self._channel.close(f"smux of version {version} is not known")
                return
            if len(self._data) < _FRAME.size + length:
                return
            content, self._data = self._data[_FRAME.size : _FRAME.size + length], self._data[_FRAME.size + length :]
            await self._frame(command, stream, content)

    async def _frame(self, command: int, stream: int, content: bytes) -> None:
        if command == SYN:
            properties = self._channel.session.properties
            try:
                reader, writer = await asyncio.open_connection(properties["host"], int(properties["portNumber"]))
            except OSError:
                await self._channel.send(FLAG, CONNECT_TO_PORT_ERROR.to_bytes(4))
                await self._send(FIN, stream)
                return
            self._streams[stream] = writer
            task = asyncio.create_task(self._copy(stream, reader))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif command == DATA and (found := self._streams.get(stream)):
            with contextlib.suppress(ConnectionError):
                found.write(content)
                await found.drain()
        elif command == FIN and (found := self._streams.pop(stream, None)):
            found.close()

    async def _copy(self, stream: int, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_MOST - _FRAME.size):
                await self._send(DATA, stream, data)
        await self._send(FIN, stream)

    async def _send(self, command: int, stream: int, content: bytes = b"") -> None:
        await self._channel.send(OUTPUT, _FRAME.pack(1, command, len(content), stream) + content)

    async def stop(self) -> None:
        for writer in self._streams.values():
            writer.close()
        for task in list(self._tasks):
            task.cancel()


class _Terminal:
    """The agent's end of a shell, or of a command: a program in a terminal."""

    def __init__(self, channel: _Channel) -> None:
        self._channel = channel
        self._process: subprocess.Popen[bytes] | None = None
        self._terminal = -1
        self._reading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        try:
            words, env, folder = self._channel.session.command()
            self._terminal, there = pty.openpty()
            try:
                self._process = subprocess.Popen(
                    words, stdin=there, stdout=there, stderr=there, env={**env, "TERM": "xterm-256color"}, cwd=folder,
                    preexec_fn=_own_terminal,
                )  # fmt: skip
            finally:
                os.close(there)
        except (OSError, ValueError) as e:
            await self._channel.close(str(e))
            return
        self._reading = asyncio.create_task(self._copy())

    async def receive(self, payload_type: int, payload: bytes) -> None:
        if payload_type == SIZE:
            size = json.loads(payload)
            fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["cols"], 0, 0))
        elif payload_type == OUTPUT:
            os.write(self._terminal, payload)

    async def _copy(self) -> None:
        while data := await asyncio.to_thread(self._read):
            await self._channel.send(OUTPUT, data)
        await self._channel.close()

    def _read(self) -> bytes:
        with contextlib.suppress(OSError):  # the program has ended
            return os.read(self._terminal, _MOST)
        return b""

    async def stop(self) -> None:
        """Hang up, which a shell passes on to its jobs; after a time, end all that is left of the terminal's session."""
        if self._process:
            for ending in (signal.SIGHUP, signal.SIGKILL):
                for one in _of_session(self._process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(one, ending)
                self._process.send_signal(ending)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    await asyncio.to_thread(self._process.wait, _GRACE_SECONDS)
        if self._terminal >= 0:
            os.close(self._terminal)
            self._terminal = -1


def _of_session(leader: int) -> list[int]:
    """The processes of a session, on Linux: a shell's jobs have their own groups."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(int(place.name)) == leader:
                found.append(int(place.name))
    return found


def _own_terminal() -> None:
    """Give the terminal to a new process session, so that Ctrl-C is for the program."""
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
