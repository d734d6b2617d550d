"""examples/serve.sh, with a small server that takes of vLLM's options, variables and rules those that the script uses; in a real Slurm, and alone.

`vllm serve` of vLLM 0.29.0 and PEFT 0.21.2 accepted the same words and folders (2026-11-29): their own parser, model configuration and merge.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from sandbox import head_node
from sandbox.paths import HOME as ROOT
from sandbox.processes import wait_until
from sandbox.slurm import LocalSlurm
from tests.jobs.conftest import fleet, make_cluster
from tests.support import completed
from trainium_cdk.jobs import LocalTransport, Script, SlurmBackend

SERVE = ROOT / "examples/serve.sh"
VLLM = """#!{python}
import argparse, http.server, json, os, sys, pathlib
made = argparse.ArgumentParser(prog="vllm serve", allow_abbrev=False)
made.add_argument("model")
for name in ("host", "served-model-name"):
    made.add_argument("--" + name, required=True)
for name in ("port", "tensor-parallel-size", "max-model-len", "max-num-batched-tokens", "max-num-seqs"):
    made.add_argument("--" + name, required=True, type=int)
made.add_argument("--additional-config", type=json.loads, required=True)
assert sys.argv[1] == "serve", sys.argv
given = made.parse_args(sys.argv[2:])
model, neuron = pathlib.Path(given.model), given.additional_config["neuron_config"]
for file in ("config.json", "model.safetensors", "tokenizer.json"):
    if not (model / file).is_file():
        sys.exit(f"OSError: {{model}} has no {{file}}")
assert neuron.keys() == {{"num_batched_tokens_buckets", "num_seqs_buckets"}}
assert neuron["num_batched_tokens_buckets"][-1] == given.max_num_batched_tokens < given.max_model_len  # prefix caching segments prompts
assert neuron["num_seqs_buckets"][-1] == given.max_num_seqs
assert given.tensor_parallel_size <= int(os.environ["NPROC_PER_NODE"])
assert os.path.exists("/dev/infiniband") or os.environ["NEURON_SKIP_EFA_AFFINITY"] == "1"
assert "NEURON_RT_VISIBLE_CORES" not in os.environ  # the plug-in refuses it
graph = pathlib.Path(os.environ["VLLM_CACHE_ROOT"], "neuron/compile_cache/0123", "graph.neff")
print("found in the cache" if graph.exists() else "compiles", flush=True)
graph.parent.mkdir(parents=True, exist_ok=True)
graph.touch()

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        key = os.environ["VLLM_API_KEY"]
        guarded = self.path.startswith("/v1")
        code = 401 if guarded and self.headers["Authorization"] != f"Bearer {{key}}" else 200
        answer = json.dumps({{"data": [{{"id": given.served_model_name, "root": given.model}}], "given": vars(given)}}).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

http.server.ThreadingHTTPServer((given.host, given.port), Handler).serve_forever()
"""
PEFT = """import json, pathlib
class AutoPeftModelForCausalLM:
    @classmethod
    def from_pretrained(cls, folder, *, dtype):
        assert dtype == "auto"
        made = cls()
        made.base = json.loads(pathlib.Path(folder, "adapter_config.json").read_text())["base_model_name_or_path"]
        assert pathlib.Path(folder, "adapter_model.safetensors").is_file()
        return made
    def merge_and_unload(self):
        self.merged = True
        return self
    def save_pretrained(self, folder):
        there = pathlib.Path(folder)
        there.mkdir(parents=True, exist_ok=True)
        (there / "config.json").write_text(json.dumps({"base": self.base, "merged": self.merged}))
        (there / "model.safetensors").touch()
"""
TRANSFORMERS = """import pathlib, shutil
class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, folder):
        made = cls()
        made.file = pathlib.Path(folder, "tokenizer.json")
        assert made.file.is_file()
        return made
    def save_pretrained(self, folder):
        shutil.copy(self.file, folder)
"""


def vllm(folder: Path) -> None:
    """Put the server into a folder of the PATH."""
    (folder / "vllm").write_text(VLLM.format(python=sys.executable))
    (folder / "vllm").chmod(0o755)


def checkpoint(folder: Path, *, adapters: bool = False) -> Path:
    """A result of a finetune job, by the names of its files."""
    folder.mkdir(parents=True)
    files = ("adapter_config.json", "adapter_model.safetensors") if adapters else ("config.json", "model.safetensors")
    for name in (*files, "tokenizer.json"):
        (folder / name).write_text('{"base_model_name_or_path": "Qwen/Qwen3-8B"}')
    return folder


def get(url: str, key: str = "") -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    opener.addheaders = [("Authorization", f"Bearer {key}")] if key else []
    with opener.open(url, timeout=60) as answer:
        return json.load(answer)


def served(address: str, folder: Path) -> Any:
    """What the server answers with the key of a job's folder, which is its user's alone; nothing without it."""
    file = folder / "serve/key"
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    key = file.read_text().strip()
    assert len(key) > 30
    for wrong in ("", key[:-1]):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{address}v1/models", wrong)
    holders = [one for one in folder.rglob("*") if one.is_file() and key in one.read_text(errors="replace")]
    assert holders == [file]
    shown = completed(["ps", "-ewwo", "args"], check=True).stdout
    assert ("vllm serve" in shown, key in shown) == (True, False)
    return get(f"{address}v1/models", key)


def test_a_server(slurm: LocalSlurm, tmp_path: Path) -> None:
    """trn forward reaches it by what the job offers; trn cancel ends it, and with it the offer."""
    vllm(tmp_path)
    env = slurm.node_env()
    env["PATH"] = f"{tmp_path}:{env['PATH']}"
    jobs = SlurmBackend(make_cluster(fleet(nodes=4)), LocalTransport(env=env, interval=0.2))
    words = (str(checkpoint(tmp_path / "output")), "--max-model-len", "16384")
    id = jobs.submit(Script.from_file(SERVE, args=words, env={"TMPDIR": str(tmp_path)}, user="ada")).id
    assert wait_until(lambda: jobs.status(id).state == "RUNNING", 300)
    with jobs.forward(id, patience=120) as tunnel:
        assert tunnel.url == f"{tunnel.address}v1"
        folder = Path(env["TRN_SHARED_ROOT"] + jobs.status(id).directory)
        found = served(tunnel.address, folder)
        assert found["data"] == [{"id": "tuned", "root": words[0]}]
        given = found["given"]
        assert (given["host"], given["max_model_len"], given["tensor_parallel_size"]) == ("127.0.0.1", 16384, 8)
        jobs.cancel(id)
        assert jobs.wait(id, 120).state == "CANCELLED"
    assert wait_until(lambda: not (folder / "forward").exists(), 60)


def start(place: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    """The script in a job's folder, as the runner starts it; its output is the job's log."""
    (place / "work").mkdir(parents=True)
    path = f"{place.parents[1]}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TMPDIR": str(place), "NPROC_PER_NODE": "4", **variables}
    with (place / "log").open("w") as log:
        return subprocess.Popen([SERVE, *words], cwd=place / "work", env=env, stdout=log, stderr=log, text=True)


def test_adapters_are_merged_and_the_next_server_does_not_compile(tmp_path: Path) -> None:
    """pip installs PEFT into the job's folder. What was compiled stays on the shared file system."""
    vllm(tmp_path)
    (tmp_path / "wheels").mkdir()
    for name, version, module in (("peft", "0.21.2", PEFT), ("accelerate", "1.15.0", "")):
        head_node.wheel(tmp_path / "wheels", name, version, {f"{name}.py": module})
    (tmp_path / "image").mkdir()
    (tmp_path / "image/transformers.py").write_text(TRANSFORMERS)
    variables = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
        "PYTHONPATH": str(tmp_path / "image"),
        "TORCH_NEURONX_NEFF_CACHE_DIR": str(tmp_path / "neuron_cache"),
    }
    adapters = checkpoint(tmp_path / "output/checkpoint-20", adapters=True)
    for number, compiled in enumerate(("compiles", "found in the cache")):
        place = tmp_path / f"jobs/serve-{number}"
        with start(place, str(adapters), **variables) as job:
            assert wait_until((place / "forward").exists, 120), (place / "log").read_text()
            port, _, path = (place / "forward").read_text().strip().partition(" ")
            [model] = served(f"http://127.0.0.1:{port}/", place)["data"]
            assert path == "/v1"
            assert json.loads(Path(model["root"], "config.json").read_text()) == {
                "base": "Qwen/Qwen3-8B",
                "merged": True,
            }
            assert wait_until(lambda: job.poll() is not None or (tmp_path / "neuron_cache/vllm.tar").exists(), 60)
            job.terminate()
            assert job.wait(60) in (143, -15)
        assert compiled in (place / "log").read_text().splitlines()
        assert not (place / "forward").exists()


@pytest.mark.parametrize(
    ("words", "variables", "says"),
    [
        ((), {}, "give the folder of a checkpoint"),
        (("output",), {"NNODES": "2"}, "submit it with --nodes 1"),
        (("empty",), {}, "empty has no config.json"),
        (("output", "--enable-lora"), {}, "unrecognized arguments: --enable-lora"),
        (("output",), {"PATH": "/usr/bin:/bin"}, "submit it on EKS with --image"),
    ],
)
def test_what_cannot_be_served_ends_with_its_reason(
    words: tuple[str, ...], variables: dict[str, str], says: str, tmp_path: Path
) -> None:
    vllm(tmp_path)
    checkpoint(tmp_path / "output")
    place = tmp_path / "jobs/serve"
    with start(place, *(str(tmp_path / one) if one[0] != "-" else one for one in words), **variables) as job:
        assert job.wait(60) not in (0, None)
    assert says in (place / "log").read_text()
    assert not (place / "forward").exists()


def test_shellcheck_has_no_finding_in_the_examples() -> None:
    done = completed([Path(sys.executable).with_name("shellcheck"), *sorted((ROOT / "examples").glob("*.sh"))])
    assert (done.returncode, done.stdout) == (0, "")
