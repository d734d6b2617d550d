"""Containers of a job on Kubernetes: the runner as their program, with what its pod would mount. Real processes; where it can be, as process 1."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.runner.stages import FILES, program, shell
from tests.support import file_system, fill
from trainium_cdk.runner import records
from trainium_cdk.runner.spec import (
    Budget,
    Checkpoints,
    HealthRules,
    JobSpec,
    NodeEnvironment,
    Place,
    PrepareStep,
    Rule,
    StageSpec,
    to_json,
)

ROOM = Path(__file__).resolve().parents[2] / "constructs/trainium_cdk"
_RUN = """
import sys
from pathlib import Path
from runner.work import container, pod, process
here = Path(sys.argv[1])
pod.GIVEN, pod._SECRET = here / "trn", here / "trn/env/env.json"
container.WRONG = here / "wrong"
pod._MESSAGE = here / "message"
process._CGROUP, process._CGROUPS = here / "cgroup", str(here)
process.SAVING_SECONDS = process.LIMIT_SECONDS = 3
sys.argv[0] = sys.argv[2]
pod.main(sys.argv[3])
"""
SAVES = """
import signal, sys, time
def save(*_):
    print("saves", flush=True); time.sleep(0.5); print("has saved", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("begins", flush=True)
time.sleep(100)
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainium_cdk.client.jobs.runner import pyz

    made = tmp_path_factory.mktemp("runner") / "runner.pyz"
    made.write_bytes(pyz().content)
    return made


def _alone() -> list[str]:
    """The words by which a program is process 1; none where that cannot be."""
    words = ["unshare", "--fork", "--pid", "--mount-proc", "--kill-child"]
    return [] if subprocess.run([*words, "true"], capture_output=True, check=False).returncode else words


class Pods:
    """The containers of a job, on a shared file system of their own."""

    def __init__(self, place: Path, runner: Path, job: JobSpec) -> None:
        self.place, self.runner = place, runner
        self.folder = place / "shared/efs/trn/jobs/run-1"
        self.folder.parent.mkdir(parents=True)
        given = place / "trn"
        for name, value in (("job", to_json(dataclasses.replace(job, variables={}))), ("env", dict(job.variables))):
            data = given / name / "..data"  # as Kubernetes mounts it
            data.mkdir(parents=True)
            (data / f"{name}.json").write_text(json.dumps(value))
            (given / name / f"{name}.json").symlink_to(f"..data/{name}.json")
        (place / "cgroup").write_text("0::/\n")
        (place / "memory.events").write_text("low 0\noom_kill 0\n")
        self.started: list[subprocess.Popen[bytes]] = []

    def start(self, stage: str = "train", node: int = 0, **env: str) -> subprocess.Popen[bytes]:
        full = {
            **{k: v for k, v in os.environ.items() if not k.startswith("TRN_")}, "PYTHONPATH": str(ROOM), "TRN_SHARED_ROOT": str(self.place / "shared"),
            "TRN_JOB": "/efs/trn/jobs/run-1", "TRN_HOST": "team-a-", "TRN_NODE": f"ip-{node}", "TRN_ATTEMPT": "0", "TRN_RUN": "uid",
            "MASTER_ADDR": "run-1-train-0-0.run-1", "JOB_COMPLETION_INDEX": str(node), "HOME": str(self.place / "home"), **env,
        }  # fmt: skip
        interpreter = os.environ.get("TRN_TEST_PYTHON", sys.executable)
        words = [*_alone(), interpreter, "-c", _RUN, str(self.place), str(self.runner), stage]
        with (self.place / f"{stage}.{node}.out").open("ab") as out:
            made = subprocess.Popen(words, env=full, stdout=out, stderr=out)
        self.started.append(made)
        return made

    def run(self, stage: str = "train", node: int = 0, **env: str) -> int:
        return self.start(stage, node, **env).wait(60)

    def tell(self, made: subprocess.Popen[bytes]) -> None:
        """SIGTERM, as the kubelet sends it to process 1."""
        children = Path(f"/proc/{made.pid}/task/{made.pid}/children").read_text().split()
        os.kill(int(children[0]) if _alone() else made.pid, signal.SIGTERM)

    def out(self, stage: str = "train", node: int = 0) -> str:
        return (self.place / f"{stage}.{node}.out").read_text()

    def log(self, name: str = "train.0") -> str:
        text = (self.folder / f"logs/{name}.log").read_text()
        return re.sub("trn: at most .* files may be open here.*\n", "", text)  # as on this machine

    def says(self, text: str, node: int = 0) -> None:
        until = time.monotonic() + 30
        while text not in self.out(node=node):
            assert time.monotonic() < until, self.out(node=node)
            time.sleep(0.02)

    @property
    def message(self) -> Any:
        return json.loads((self.place / "message").read_text()) if (self.place / "message").exists() else None


@pytest.fixture
def pods(tmp_path: Path, runner: Path) -> Any:
    made: list[Pods] = []

    def make(*stages: StageSpec, **fields: Any) -> Pods:
        made.append(Pods(tmp_path, runner, JobSpec("run-1", "script", stages, **fields)))
        return made[-1]

    yield make
    for one in [process for each in made for process in each.started]:
        with contextlib.suppress(ProcessLookupError):
            one.kill()
        one.wait()


def test_what_a_program_gets(pods: Any) -> None:
    odd = "a'\"b\\ $HOME $(id) \n é"
    show = "import json, os, sys; print(json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]))"
    made = program("python3", (FILES, "/show.py"), odd, (Place("workers"),), (Place("master"),))
    job = pods(
        StageSpec("train", 2, made),
        files={"show.py": show.encode()},
        variables={"OWN": odd},
        environment=NodeEnvironment(cores=32, cache="c"),
    )
    assert job.run(node=1) == 0, job.out(node=1)
    got, folder, env = json.loads(job.log("train.1"))
    assert (got, folder, env["OWN"]) == ([odd, "64", "run-1-train-0-0.run-1"], str(job.folder / "work"), odd)
    assert (env["NODE_RANK"], env["NNODES"], env["NPROC_PER_NODE"]) == ("1", "2", "32")
    cache = job.place / "shared/efs/trn/neuron_cache/c/team-a-node-1"
    assert env["NEURON_CC_FLAGS"] == f"--cache_dir={cache}"
    assert cache.is_dir()
    begins = job.out(node=1).splitlines()[0]
    assert begins.startswith("trn: train: node 1 of 2, ranks 32 to 63, on ip-1, attempt 0, 20")
    assert odd not in "".join(p.read_text() for p in job.folder.rglob("*.json"))  # variables are on no shared disk
    assert job.message is None


@pytest.mark.parametrize(
    ("script", "again", "code", "own"),
    [
        ("echo boom; exit 3", False, 66, 3),
        ("echo boom; exit 3", True, 75, 3),
        ("echo boom; kill -9 $$", False, 66, 137),  # another one than the kernel has killed it
        ("echo boom; kill -TERM $$", False, 66, 143),  # nobody told this container to end
        ("echo boom; exit 143", True, 75, 143),
    ],
)
def test_a_program_that_fails(script: str, again: bool, code: int, own: int, pods: Any) -> None:
    job = pods(StageSpec("train", 2, shell(script), again=again))
    assert job.run(node=1) == code
    assert job.message["code"] == own
    assert "boom" in job.message["last"] or "killed by signal" in job.message["last"]
    assert job.message["node"] == 1
    assert job.run(node=0) == code
    assert job.message["node"] == 1  # the first of this attempt
    assert job.run(node=0, TRN_ATTEMPT="1") == code
    assert job.message["node"] == 0


def test_a_process_of_jax_that_ends_because_another_got_the_signal(pods: Any) -> None:
    job = pods(StageSpec("train", 2, shell("exit 143"), spmd=True))
    assert job.run(node=0) == 143  # which Kubernetes starts again, as that of the other
    assert job.message is None
    assert "node 0 of 2, ranks 0 to 0," in job.out(node=0)


def test_a_program_that_there_is_not(pods: Any) -> None:
    job = pods(StageSpec("train", program=program("no-such-program"), again=True))
    assert job.run() == 64
    assert (job.message["code"], job.message["last"]) == (
        64,
        "no-such-program cannot be started: No such file or directory",
    )
    assert "Traceback" not in job.out()


def test_a_job_that_is_damaged(pods: Any) -> None:
    job = pods(StageSpec("train", program=shell("true")))
    (job.place / "trn/job/..data/job.json").write_text("{")
    assert job.run() == 64
    assert "trn: the job that this pod was given is damaged" in job.out()


def test_a_container_that_is_told_to_end_saves_its_state(pods: Any) -> None:
    job = pods(StageSpec("train", program=program("python3", (FILES, "/save.py"))), files={"save.py": SAVES.encode()})
    made = job.start()
    job.says("begins")
    job.tell(made)
    assert made.wait(30) == 143  # not 0: its index has not completed
    assert job.log().endswith("has saved\n")
    assert job.message is None
    assert not list((job.folder / "state").glob("train.*"))


def test_a_container_that_is_told_to_end_before_its_program_begins(pods: Any) -> None:
    job = pods(StageSpec("precompile", 2, shell("true")), StageSpec("train", 2, shell("echo trains")))
    made = job.start()
    job.says("trn: train:")
    job.tell(made)
    assert made.wait(30) == 143
    assert "trains" not in job.out()


def test_a_time_limit(pods: Any) -> None:
    job = pods(
        StageSpec("train", program=program("python3", (FILES, "/save.py")), seconds=1),
        files={"save.py": SAVES.encode()},
    )
    assert job.run() == 124
    assert job.log().endswith("has saved\n")
    assert job.message["last"] == "reached its time limit of 1 s"


def test_several_processes(pods: Any) -> None:
    said = 'echo "rank $RANK $LOCAL_RANK $WORLD_SIZE"; [ "$RANK" != "$BAD" ] || exit 7; [ -z "$BAD" ] || sleep 60'
    job = pods(StageSpec("train", 2, shell(said), processes=2), environment=NodeEnvironment(cores=32))
    assert job.run(node=1) == 0
    assert sorted(job.log("train.1").splitlines()) == ["rank 2 0 4", "rank 3 1 4"]
    assert "ranks 2 to 3," in job.out(node=1)
    assert job.run(node=1, BAD="3") == 66
    assert job.message["code"] == 7


def test_nobody_trains_before_all_have_compiled(pods: Any) -> None:
    job = pods(StageSpec("precompile", 2, shell("echo compiles")), StageSpec("train", 2, shell("echo trains")))
    assert job.run("precompile", 0) == 0
    waits = job.start(node=0)
    time.sleep(1.5)
    assert waits.poll() is None
    assert job.run("precompile", 1, TRN_ATTEMPT="1") == 0  # of another attempt
    time.sleep(1.5)
    assert waits.poll() is None
    assert job.run("precompile", 1) == 0
    assert waits.wait(30) == 0
    assert "trains" in job.out()


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("echo 'Total failed compilations: 2'", 65, "graphs failed to compile"),
        ("echo 'Total failed compilations: 0'", 0, ""),
        ("exit 1", 65, ""),
    ],
)
def test_what_does_not_compile(script: str, code: int, said: str, pods: Any) -> None:
    job = pods(StageSpec("precompile", 1, shell(script)), StageSpec("train", 1, shell("echo trains")))
    assert job.run("precompile") == code
    assert said in job.out("precompile")
    assert (records.marked(job.folder, "precompile", "uid-0", "done") == [0]) is (code == 0)
    if code:
        assert job.message["code"] in (0, 1)


def test_a_budget_ends_a_job_whose_file_system_is_full(pods: Any) -> None:
    """No record can be written of it."""
    rules, budget = HealthRules(every=0.2), Budget(50.0, 2.0)
    made = pods(StageSpec("train", 1, shell("echo trains; exec sleep 100")), health=rules, budget=budget)
    with file_system(made.folder / "state", "4k"):
        fill(made.folder / "state")
        assert made.run() == 66
        assert not list((made.folder / "state").glob("*.json"))
    assert "save: its nodes have cost 50.00 of at most 50.00 USD (--max-usd)" in made.log()
    assert "of at most 50.00 USD (--max-usd): it saves and stops" in made.message["last"]


@pytest.mark.parametrize(
    ("script", "kills", "code"), [("exit 1", 1, 137), ("exit 0", 1, 0), ("exit 1", 0, 66), ("kill -9 $$", 1, 137)]
)
def test_a_memory_that_is_full(script: str, kills: int, code: int, pods: Any) -> None:
    """Another attempt would need as much."""
    job = pods(StageSpec("train", program=shell(f'echo "oom_kill $KILLS" > "$EVENTS"; {script}')))
    assert job.run(KILLS=str(kills), EVENTS=str(job.place / "memory.events")) == code
    if code == 137:
        assert (job.message["code"], job.message["last"]) == (137, "out of memory")


def test_a_memory_that_is_full_keeps_the_exception(pods: Any) -> None:
    job = pods(
        StageSpec("train", program=shell('echo "oom_kill 1" > "$EVENTS"; echo "ValueError: a worker is gone"; exit 1'))
    )
    assert job.run(EVENTS=str(job.place / "memory.events")) == 137
    assert (job.message["last"], job.message["kills"]) == ("out of memory", 1)
    assert job.message["said"]["raised"] == ["ValueError: a worker is gone"]


def test_members_of_an_array(pods: Any) -> None:
    job = pods(
        StageSpec("train", program=shell('echo "I am $TRN_ARRAY_INDEX of $TRN_ARRAY_COUNT in $(pwd)"')), array="0-3"
    )
    assert job.run(TRN_ARRAY_INDEX="2", TRN_HOST="member-2-") == 0, job.out()
    assert job.log("../2/logs/train.0") == f"I am 2 of 4 in {job.folder}/2/work\n"


def test_nodes_go_on_from_the_newest_checkpoint(pods: Any) -> None:
    kept = Checkpoints("output", pattern="step-*", last="done", forget="others")
    job = pods(StageSpec("train", 2, shell('echo "from $0"', resume=((Place("checkpoint"),),))), checkpoints=kept)
    for step in (9, 10):
        (job.folder / f"output/step-{step}").mkdir(parents=True)
        (job.folder / f"output/step-{step}/done").write_text("x")
    assert job.run(node=1) == 0
    assert (job.folder / "output/step-9").exists()  # node 0 forgets it for all
    assert job.run(node=0) == 0
    assert not (job.folder / "output/step-9").exists()
    assert job.log("train.1") == f"from {job.folder}/output/step-10\n"


def test_what_is_prepared(pods: Any) -> None:
    job = pods(StageSpec("prepare"), StageSpec("train", program=shell("true")))
    assert job.run("prepare") == 0, job.out("prepare")
    assert job.out("prepare").startswith("trn: prepare: on ip-0, attempt 0, 20")


@pytest.mark.parametrize(
    ("step", "code", "said"),
    [
        (PrepareStep("no-such-step"), 64, "trn: this runner knows no step 'no-such-step' of prepare"),
        (PrepareStep("tools", {"names": ["no-such-tool"], "fix": "Build one"}), 64, "no-such-tool"),
        (
            PrepareStep("tools", {"no": "argument"}),
            1,
            "trn: the runner failed, which is a fault of it: TypeError in prepare/main.py:",
        ),
    ],
)
def test_what_cannot_be_prepared(step: PrepareStep, code: int, said: str, pods: Any) -> None:
    job = pods(StageSpec("prepare"), StageSpec("train", program=shell("true")), prepare=(step,))
    assert job.run("prepare") == code, job.out("prepare")
    assert said in job.log("prepare.0")
    assert "Traceback" not in job.out("prepare")


def test_a_path_that_there_is_not(pods: Any) -> None:
    job = pods(
        StageSpec("prepare"), StageSpec("train", program=shell("true")), require=((Place("root"), "/efs/no 'such'"),)
    )
    assert job.run("prepare") == 64
    assert job.message["last"] == "there is no /efs/no 'such' on the cluster. Check the path"


def test_versions_that_do_not_work_together(pods: Any) -> None:
    environment = NodeEnvironment(rules=(Rule(("", ""), ("", ""), "use another image"),), checks="refuse")
    job = pods(StageSpec("train", program=shell("echo trains")), environment=environment)
    assert job.run(TRN_SYS_ROOT="/no/such/place") == 64
    assert "the Neuron driver is not loaded" in job.message["last"]
