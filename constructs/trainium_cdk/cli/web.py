"""A page that is made again at each request, for the browser of this machine's user."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from trainium_cdk.drawing.markup import cleaned
from trainium_cdk.errors import TrnError


@contextmanager
def serve(page: Callable[[], str], port: int = 0) -> Iterator[str]:
    """Serve at 127.0.0.1; gives the page's address. Its path is secret, as other users of this machine reach the port too.

    Args:
        page: makes it. A TrnError becomes a page with its text.
        port: default: a free one.

    Raises:
        TrnError: the port is in use.
    """
    path = f"/{secrets.token_urlsafe(16)}/"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # a page of another origin must not read this one through a name that it makes point here
            here = self.headers.get("Host", "").partition(":")[0] in ("127.0.0.1", "localhost")
            asked = self.path.partition("?")[0]
            if not here or not secrets.compare_digest(asked.encode(), path.encode()):
                self.send_error(404)
                return
            kind = "html"
            try:
                content = page().encode()
            except TrnError as e:
                kind, content = "plain", cleaned(str(e)).encode()
            self.send_response(200 if kind == "html" else 503)
            self.send_header("Content-Type", f"text/{kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            if kind == "plain":
                self.send_header("Refresh", "5")
            self.send_header("Cache-Control", "no-store")
            self.send_header("Referrer-Policy", "no-referrer")
            with suppress(ConnectionError):  # the browser has left the page
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Requests are not logged: the terminal has the live view."""

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as e:
        raise TrnError(
            f"port {port} of this machine cannot be used: {e.strerror}. Give another --port, or none"
        ) from None
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{path}"
    finally:
        server.shutdown()
        server.server_close()
