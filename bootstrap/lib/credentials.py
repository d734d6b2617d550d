"""credentials.py ROLE FOLDER PORT: gives the programs of this node's users the role of the cluster's jobs.

SDKs of AWS ask here, as in a container (AWS_CONTAINER_CREDENTIALS_FULL_URI). Only root can use the node's own role, which may become that one;
it becomes no other. The port is below 1024, so that no job can take it. The token in FOLDER is new at each start. Everyone on the node can read
it, as all jobs have one role; it keeps out requests that a program is tricked into. Standard library only, Python 3.9.
"""

import datetime
import hmac
import io
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

EARLY = 15 * 60
"""Seconds before their end when credentials are replaced. SDKs ask again 10 to 15 minutes before it."""
PAUSE = 10
"""Seconds after a failure during which nobody asks AWS again."""


SECONDS, MOST_BYTES, MOST_CONNECTIONS = 5, 16_384, 128
"""Bytes of a request, and connections at once: more are closed unread, and SDKs ask again."""


class Failed(Exception):
    pass


class Role:
    """A role, and its newest credentials."""

    def __init__(self, arn):
        self.arn, self.found, self.until, self.failed = arn, None, 0.0, (0.0, "")
        self.lock = threading.Lock()

    def credentials(self):
        with self.lock:
            if time.time() > self.until - EARLY:
                self._renew()
            return self.found

    def _renew(self):
        when, why = self.failed
        if time.time() > when + PAUSE:
            try:
                self.found, self.until = assume(self.arn)
                return
            except Failed as e:
                why = str(e)
                self.failed = time.time(), why
                print(f"credentials of {self.arn}: {why}", file=sys.stderr, flush=True)
        if time.time() > self.until - 60:
            raise Failed(why)


def assume(arn):
    """New credentials as SDKs read them, and when they end. With root's own settings only."""
    name = re.sub(r"[^\w+=,.@-]", "-", socket.gethostname())[:64].ljust(2, "-")
    words = ["aws", "sts", "assume-role", "--output=json", f"--role-arn={arn}", f"--role-session-name={name}"]
    env = {**os.environ, "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    env["AWS_STS_REGIONAL_ENDPOINTS"] = "regional"
    try:
        done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise Failed(" ".join(done.stderr.decode(errors="replace").split())[-500:])
        given = json.loads(done.stdout)["Credentials"]
        end = datetime.datetime.fromisoformat(given["Expiration"].replace("Z", "+00:00")).timestamp()
        keys = {"AccessKeyId": given["AccessKeyId"], "SecretAccessKey": given["SecretAccessKey"]}
        keys["Token"] = given["SessionToken"]
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError, AttributeError) as e:
        raise Failed(f"aws sts assume-role: {type(e).__name__}: {e}") from None
    return {**keys, "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(end)), "RoleArn": arn}, end


class Handler(BaseHTTPRequestHandler):
    def handle(self):
        """Answer one request, if its head comes within SECONDS. Anybody on the node may be slow."""
        head, end = b"", time.monotonic() + SECONDS
        try:
            while b"\r\n\r\n" not in head and len(head) < MOST_BYTES:
                self.connection.settimeout(max(0.001, end - time.monotonic()))
                more = self.connection.recv(MOST_BYTES)
                if not more:
                    return
                head += more
            self.connection.settimeout(SECONDS)  # to send the answer
            self.rfile = io.BytesIO(head)
            self.handle_one_request()
        except OSError:  # it took too long, or has gone
            return

    def do_GET(self):
        given = self.headers.get("Authorization") or ""
        if not hmac.compare_digest(given.encode(), self.server.token.encode()):
            self._answer(401, {"Code": "Unauthorized", "Message": "the token is not the service's"})
            return
        try:
            self._answer(200, self.server.role.credentials())
        except Failed as e:
            self._answer(503, {"Code": "Unavailable", "Message": str(e)})

    def _answer(self, status, value):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


class Service(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, arn, folder, port):
        self.free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.role, self.token = Role(arn), secrets.token_hex(32)
        super().__init__(("127.0.0.1", port), Handler)
        staged = Path(folder, ".token")
        staged.write_text(self.token, encoding="ascii")
        staged.chmod(0o444)
        staged.replace(Path(folder, "token"))

    def process_request(self, request, client_address):
        if not self.free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request, client_address):
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()


if __name__ == "__main__":
    Service(sys.argv[1], sys.argv[2], int(sys.argv[3])).serve_forever()
