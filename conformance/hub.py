"""A local Hugging Face hub: the two requests with which a client lists and downloads a model's files."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REVISION = hashlib.sha1(b"the only revision").hexdigest()  # noqa: S324  it looks like a commit

_INFO = re.compile(r"/api/models/(?P<model>[\w./-]+?)/revision/[\w-]+")
_FILE = re.compile(rf"/(?P<model>[\w./-]+?)/resolve/{REVISION}/(?P<file>[\w.-]+)")


@contextmanager
def hub(models: Path) -> Iterator[str]:
    """Serve the models below a folder (`models/<name>/<file>`); yields the address for HF_ENDPOINT."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"models": models}))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    models: Path

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self, body: bool) -> None:
        content = self._content()
        self.send_response(404 if content is None else 200)
        if content is not None:
            self.send_header("ETag", f'"{hashlib.sha256(content).hexdigest()}"')
            self.send_header("X-Repo-Commit", REVISION)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        if body and content is not None:
            self.wfile.write(content)

    def _content(self) -> bytes | None:
        if found := _INFO.fullmatch(self.path):
            folder = self.models / found["model"]
            if not folder.is_dir():
                return None
            files = [{"rfilename": file.name} for file in sorted(folder.iterdir())]
            return json.dumps({"id": found["model"], "sha": REVISION, "siblings": files}).encode()
        if found := _FILE.fullmatch(self.path):
            file = self.models / found["model"] / found["file"]
            return file.read_bytes() if file.is_file() else None
        return None
