"""Ports of this machine, forwarded through an instance by Session Manager: no open port, no key."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import IO, Any

from trainium_cdk._aws import client, credentials_error, failures
from trainium_cdk.errors import TransportError

PLUGIN = "session-manager-plugin"
TO_HOST = "AWS-StartPortForwardingSessionToRemoteHost"
"""The document that forwards to another host, as the instance reaches it."""
_COMMAND = "AWS-StartInteractiveCommand"
_RESPONSE = "AWS_SSM_START_SESSION_RESPONSE"
_LEAST = (1, 2, 497)
"""First version that takes the session's secret from a variable, and not from its command line, which other users can read."""
_READY_SECONDS = 30.0
_END_OF_INPUT_SECONDS = 1.0


def answers(host: str, port: int, timeout: float) -> bool:
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return True
    except OSError:
        return False


def serves(url: str) -> bool:
    """Return whether a server of this machine responds. No proxy is asked."""
    plain: Any = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with contextlib.suppress(OSError), plain.open(url, timeout=5):  # urllib's errors are OSErrors
        return True
    return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def plugin() -> str:
    found = shutil.which(PLUGIN)
    if found is None:
        raise TransportError(
            f"{PLUGIN} is not installed, by which the VPC is reached. Install it (AWS Systems Manager user guide), or work from "
            "inside the VPC",
            again=False,
        )
    version = subprocess.run(
        [found, "--version"], capture_output=True, text=True, timeout=20, check=False
    ).stdout.strip()
    numbers = tuple(int(n) for n in version.split(".")[:3] if n.isdigit())
    if numbers < _LEAST:
        raise TransportError(
            f"{PLUGIN} is {version or 'of no known version'}; {'.'.join(map(str, _LEAST))} or newer is needed, which keeps the "
            "session's secret off its command line. Install a newer one"
        )
    return found


def _start(
    target: str, region: str, document: str, parameters: Mapping[str, str]
) -> tuple[list[str], dict[str, str], Callable[[], None]]:
    """Start a session: the plug-in's command line and environment, and a function that ends the session.

    Raises:
        TransportError: the plug-in is missing or too old, or the session cannot be started.
    """
    found = plugin()
    wanted: dict[str, Any] = {"Target": target}
    if document:
        wanted |= {"DocumentName": document, "Parameters": {name: [value] for name, value in parameters.items()}}
    try:
        ssm = client("ssm", region)
        session = ssm.start_session(**wanted)
    except failures() as e:
        reason = credentials_error(e) or f"{e}. Is it running, and may you call ssm:StartSession on it?"
        raise TransportError(f"no session with {target}: {reason}") from None
    secret = json.dumps({key: session[key] for key in ("SessionId", "TokenValue", "StreamUrl")})

    def end() -> None:
        with contextlib.suppress(*failures()):
            ssm.terminate_session(SessionId=session["SessionId"])

    command = [found, _RESPONSE, region, "StartSession", "", json.dumps(wanted), ssm.meta.endpoint_url]
    return command, {**os.environ, _RESPONSE: secret}, end


def terminal(target: str, region: str, command: str = "") -> int:
    """A shell on an instance, or a command there, with this terminal, until it ends. Ctrl-C is for the program there.

    Returns:
        The plug-in's exit code: Session Manager does not report the command's.

    Raises:
        TransportError: as of `forward`.
    """
    started, env, end = _start(target, region, _COMMAND if command else "", {"command": command} if command else {})
    ignored = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
    handlers = [signal.signal(one, signal.SIG_IGN) for one in ignored]
    try:
        with subprocess.Popen(started, env=env, stdin=None if os.isatty(0) else subprocess.PIPE) as process:
            if process.stdin:
                threading.Thread(target=_feed, args=(process.stdin,), daemon=True).start()
            return process.wait()
    finally:
        for one, handler in zip(ignored, handlers, strict=True):
            signal.signal(one, handler)
        end()


def _feed(plugin: IO[bytes]) -> None:
    """Give the plug-in this process's input, and then Ctrl-D for the program: at the end of its own input it would end the session, with
    what the program has still to print. Ctrl-D is repeated, as a terminal loses one that comes while a shell changes the terminal's mode."""
    with contextlib.suppress(OSError, ValueError):  # the plug-in has ended
        for data in chain(iter(lambda: os.read(0, 1024), b""), _ends_of_input()):
            plugin.write(data)
            plugin.flush()


def _ends_of_input() -> Iterator[bytes]:
    while True:
        yield b"\x04"
        time.sleep(_END_OF_INPUT_SECONDS)


def forward(target: str, region: str, document: str, parameters: Mapping[str, str], port: int) -> Callable[[], None]:
    """Forward a port of this machine through an instance, as long as this process lasts, or until the function that it returns is called.

    Args:
        target: id of the instance.
        document: of Session Manager, which forwards ports; `parameters`: its own, without the local port.

    Raises:
        TransportError: the plug-in is missing or too old, or the session cannot be started.
    """
    command, env, terminate = _start(target, region, document, {**parameters, "localPortNumber": str(port)})
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is handled in this process, which then ends it
    )

    def end() -> None:
        atexit.unregister(end)
        process.send_signal(signal.SIGINT)  # SIGTERM ends the plug-in without the deletion of its socket
        try:
            process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stderr:
            process.stderr.close()
        terminate()

    atexit.register(end)
    until = time.monotonic() + _READY_SECONDS
    while not answers("127.0.0.1", port, 1.0):
        if process.poll() is not None:
            error = (process.stderr.read() if process.stderr else "").strip().splitlines()[-1:]
            raise TransportError(f"the tunnel through {target} ended: {' '.join(error) or 'no reason reported'}")
        if time.monotonic() > until:
            raise TransportError(
                f"the tunnel through {target} was not open within {_READY_SECONDS:.0f} s. Is its SSM agent online?"
            )
        time.sleep(0.2)
    return end
