"""examples/notebook.sh in a real Slurm, with a small server that takes JupyterLab's options, token and files."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from sandbox.paths import HOME as ROOT
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.support import completed
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

JUPYTER = """#!{python}
import http.server, json, os, sys, urllib.parse
options = dict(word.removeprefix("--").split("=", 1) for word in sys.argv[1:] if "=" in word)
token = open(os.environ["JUPYTER_TOKEN_FILE"]).read()

class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_): ...  # Jupyter's has [secret] in place of a token

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if urllib.parse.parse_qs(query).get("token") != [token]:
            return self.send_error(403)
        answer = json.dumps(options).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)
        if path == "/api/shutdown":
            self.wfile.flush()
            os._exit(0)

for port in range(8888, 8938):  # as Jupyter: the next one where it is taken
    try:
        server = http.server.ThreadingHTTPServer((options["ServerApp.ip"], port), Handler)
        break
    except OSError:
        pass
os.makedirs(os.environ["JUPYTER_RUNTIME_DIR"])
with open(os.path.join(os.environ["JUPYTER_RUNTIME_DIR"], f"jpserver-{{os.getpid()}}.json"), "w") as info:
    json.dump({{"port": server.server_port, "token": token}}, info)
server.serve_forever()
"""


def jupyter(folder: Path) -> None:
    """Put the server into a folder of the PATH."""
    (folder / "jupyter-lab").write_text(JUPYTER.format(python=sys.executable))
    (folder / "jupyter-lab").chmod(0o755)


def get(url: str) -> bytes:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as answer:
        return bytes(answer.read())


@pytest.mark.parametrize("ends", ["by itself", "cancelled"])
def test_a_notebook(slurm: LocalSlurm, tmp_path: Path, ends: str) -> None:
    """Its token reaches the caller, and stands in no log, command line or file of others; the job ends with the server."""
    jupyter(tmp_path)
    env = slurm.node_env()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    jobs = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=env, interval=0.2))
    file = ROOT / "examples/notebook.sh"
    id = jobs.submit(Script.from_file(file, nodes=2, args=("/tmp",), env={"IDLE_MINUTES": "5"}, user="ada")).id
    assert wait_until(lambda: jobs.status(id).state == "RUNNING", 300)
    with jobs.forward(id, patience=120) as tunnel:
        page, _, token = tunnel.url.partition("?token=")
        assert (page, len(token) > 30) == (f"{tunnel.address}lab", True)
        options = get(tunnel.url).decode()
        for wanted in ('"ServerApp.ip": "127.0.0.1"', '"ServerApp.root_dir": "/tmp"', 'cull_idle_timeout": "300"'):
            assert wanted in options
        with pytest.raises(urllib.error.HTTPError, match="403"):
            get(tunnel.address)
        folder = Path(env["TRN_SHARED_ROOT"] + jobs.status(id).directory)
        holders = [file for file in folder.rglob("*") if file.is_file() and token in file.read_text(errors="replace")]
        assert {file.name.partition("-")[0] for file in holders} == {"token", "forward", "jpserver"}
        assert {oct(file.stat().st_mode & 0o777) for file in holders} == {"0o600"}
        shown = completed(["ps", "-ewwo", "args"], check=True).stdout
        assert ("jupyter-lab" in shown, token in shown) == (True, False)
        if ends == "cancelled":
            jobs.cancel(id)
        else:
            get(f"{tunnel.address}api/shutdown?token={token}")
        assert jobs.wait(id, 120).state == ("CANCELLED" if ends == "cancelled" else "COMPLETED")
    assert wait_until(lambda: not (folder / "forward").exists(), 60)
