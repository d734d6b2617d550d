"""A user's script, for PyTorch/XLA, TorchNeuron and JAX."""

import ast
import codecs
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from trainium_cdk.client.jobs import fetching, packages, sent, sweep, words
from trainium_cdk.client.jobs.models import Checkpoints, Job
from trainium_cdk.client.jobs.plan import Plan
from trainium_cdk.client.jobs.quote import printed
from trainium_cdk.client.jobs.scheduler_calls import MAY_CALL, calls_of
from trainium_cdk.client.jobs.words import MAX_SCRIPT_BYTES, fits, passable, refused_directives, shown, wrong
from trainium_cdk.description.catalog.constants import Fetches
from trainium_cdk.description.outputs import Cluster
from trainium_cdk.description.requirements import Requirements
from trainium_cdk.errors import JobError, RequirementError, fix_of_path
from trainium_cdk.runner.spec import PrepareStep, Program, Word, Words
from trainium_cdk.text import Text

_PYTHONS = ("python", "python3")
_JAX = "jax_process.py"  # of `jobs.sent`
_INTERPRETERS = (*_PYTHONS, "bash", "sh")


def _given(value: Any) -> Requirements | None:
    try:
        return packages.read_own(value)
    except RequirementError as e:
        raise wrong(str(e)) from None


class Script(Job):
    """A user's script, started on each node with the rendezvous in its variables.

    MASTER_ADDR, MASTER_PORT, NNODES, NODE_RANK and NPROC_PER_NODE (the NeuronCores of a node) are set; with `tasks_per_node`
    above 1, or a launcher, also RANK, LOCAL_RANK and WORLD_SIZE. TRN_CHECKPOINTS is a folder on the shared file system for its
    checkpoints: after a restart, and with `resume_from`, it can continue from the files there. TRN_JOB_ID is the job's id, and TRN_GIT_COMMIT
    the commit of the folder.
    """

    TITLE: ClassVar[str] = "your own script"
    FRAMEWORKS: ClassVar[tuple[str, ...]] = ()
    NEEDS_TRAINIUM: ClassVar[bool] = False
    RESTARTS: ClassVar[bool] = False
    CHECKPOINTS: ClassVar[Checkpoints | None] = Checkpoints("checkpoints")

    kind: Literal["script"] = "script"
    filename: Annotated[
        str,
        Text(
            r"^[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}$",
            "at most 100 letters, digits and . _ + -, with a letter, a digit or _ as the first",
            "train.py",
        ),
    ]
    content: bytes = Field(max_length=MAX_SCRIPT_BYTES, repr=False)
    args: tuple[str, ...] = ()
    command: str = ""
    """A program of the nodes that is started in place of a script, with `args`."""
    sweep: Any = Field(
        default=None,
        repr=False,
        exclude=True,
        description="Values of an array's members: names and their values, each combination being a member; or a list of members.",
    )
    """As `--sweep` takes them: `sweep.read`. Here a `runner.spec.Sweep`."""
    workdir: Any = Field(
        default=None,
        repr=False,
        exclude=True,
        description="Folder of your code, in which the script runs. What its .gitignore and .trnignore name stays here. It is sent as "
        "one archive, once.",
    )
    """A `jobs.workdir.Workdir`; None: the script alone."""
    inside: str = ""
    """The script's path in the folder."""
    tree: str = ""
    """The folder's digest."""
    requirements: Annotated[Any, BeforeValidator(_given)] = Field(
        default=None,
        repr=False,
        exclude=True,
        description="Requirements file, as pip takes it, pyproject.toml or uv.lock. Its packages are installed once, on top of the cluster's packages or the image, and "
        "shared by all jobs with the same ones.",
    )
    """Or a list of lines. A `requirements.Requirements`; None: it adds no packages."""
    tasks_per_node: int = Field(default=1, ge=1, le=256, description="Copies of the script on each node.")
    launcher: Literal["none", "torchrun", "jax", "batch"] = Field(
        default="none",
        description="How a Python script starts: torchrun, jax or batch. torchrun (PyTorch's, also for scripts of Hugging Face's Accelerate): one "
        "process for each NeuronCore. jax: one process on each node with all of its NeuronCores, or tasks_per_node with a share each. none: it is "
        "started on each node as it is, and starts its processes itself. batch (Slurm): it is started once, on the first node, as sbatch does, and "
        "may call srun.",
    )
    framework: Literal["torch-xla", "torch-native", "jax"] | None = Field(
        default=None,
        description="torch-xla, torch-native (TorchNeuron) or jax. It decides which variables set the compile cache. Default: jax with launcher "
        "jax; else the cluster's.",
    )
    precompile: bool = Field(
        default=False, description="Run it under neuron_parallel_compile first (PyTorch/XLA only)."
    )

    @classmethod
    def from_file(cls, path: str | Path, **fields: Any) -> Self:
        """The job of a script file.

        Raises:
            JobError: it cannot be read, is not a file, or is empty or too large; or it imports modules of its folder, and is sent alone.
        """
        name, path = str(path)[:300], Path(path)
        if path.suffix == ".ipynb":
            raise JobError(f"{name} {_notebook(name)}")
        try:
            size, file = path.stat().st_size, path.is_file()
            content = path.read_bytes() if file and size <= MAX_SCRIPT_BYTES else None
        except (OSError, ValueError) as e:  # ValueError: a NUL byte in the path
            reason = e.strerror if isinstance(e, OSError) else e
            raise JobError(f"cannot read the script {name}: {reason}. {fix_of_path(path)}") from None
        if not file:
            raise JobError(f"{path} is not a file. Give the path of the script")
        if content is None:
            raise JobError(
                f"{path} has {size:,} bytes; a script may have at most {MAX_SCRIPT_BYTES:,}. Put data on the shared file system"
            )
        alone = path.suffix == ".py" and "workdir" not in fields and "PYTHONPATH" not in fields.get("env", ())
        if alone and (module := _imported_sibling(path.parent, content)):
            give = printed("--workdir", path.parent)
            raise JobError(
                f"{path} imports {module} from its folder, and only the script is sent. Send the folder: {give}"
            )
        return cls(filename=path.name, content=content, **fields)

    @classmethod
    def from_command(cls, words: Sequence[str], folder: str | Path | None = None, **fields: Any) -> Self:
        """The job of a command: a program of the nodes and its arguments. No shell reads them.

        Args:
            words: for example `("python", "-m", "package.train", "--lr", "1e-4")`.
            folder: it is sent, and the command runs in it; None: nothing is sent.

        Raises:
            JobError: there are no words; see `workdir.read` and `from_file`; or the folder lacks the script or module that Python or bash starts.
        """
        if not words or not words[0]:
            raise JobError("the command is empty. Write a program and its arguments after --")
        given: dict[str, Any] = {"command": words[0], "args": tuple(words[1:]), **fields}
        script, module = _script_of(words), _module_of(words)
        if folder is None and script and not script.startswith("/"):
            raise JobError(
                f"{script[:300]} is not sent, as a command has no files. Add --workdir ., or give its path on the cluster"
            )
        if folder is not None:
            from trainium_cdk.client.jobs.workdir import read

            workdir = read(Path(folder))
            given |= {"workdir": workdir, "tree": workdir.digest}
            if inside := _inside(workdir, script, module):
                return cls.from_file(workdir.folder / inside, inside=inside, **given)
        return cls(filename="command", content=b"", **given)

    @classmethod
    def from_workdir(cls, folder: str | Path, script: str, **fields: Any) -> Self:
        """The job of a script in a folder, which is sent with it.

        Args:
            script: its path in the folder, or from here.

        Raises:
            JobError: see `workdir.read` and `from_file`; or the script is not in the folder, or left out of it.
        """
        from trainium_cdk.client.jobs.workdir import read

        workdir = read(Path(folder))
        places = (Path(os.path.normpath(folder / script)) for folder in (workdir.folder, Path.cwd()))
        # the folder, too, is named without links
        file = next((place.parent.resolve() / place.name for place in places if place.is_file()), None)
        if file is None or not file.is_relative_to(workdir.folder):
            raise JobError(f"there is no script {script[:300]} in {workdir.folder}. Give its path in the workdir")
        path = file.relative_to(workdir.folder).as_posix()
        if path not in {entry.name for entry in workdir.entries}:
            raise JobError(
                f"{path} is left out of the workdir, by its .gitignore or .trnignore. Add !{path} to .trnignore"
            )
        return cls.from_file(file, workdir=workdir, inside=path, tree=workdir.digest, **fields)

    @model_validator(mode="before")
    @classmethod
    def _members(cls, given: dict[str, Any]) -> dict[str, Any]:
        return sweep.as_array(given) if given.get("sweep") is not None else given

    @model_validator(mode="after")
    def _swept(self) -> Self:
        if self.sweep:
            sweep.check(self.sweep, self.args, self.env)
        return self

    @model_validator(mode="after")
    def _arguments(self) -> Self:
        if not self.content.strip() and not self.command:
            raise wrong(f"the script {self.filename} is empty. Give a script with content")
        if reason := _not_runnable(self.filename, self.content):
            raise wrong(f"the script {self.filename} {reason}")
        if self.launcher == "batch" and self.precompile:
            raise wrong("precompile runs a script on each node, but launcher is batch. Remove --precompile")
        python = self.filename.endswith(".py") or self.command in _PYTHONS
        first = self.args[0] if self.command and self.args else ""
        if self.launcher == "jax" and (not python or self.precompile or (first.startswith("-") and first != "-m")):
            what = "precompile" if self.precompile else f"{self.command or self.filename} {first}".rstrip()
            raise wrong(f"launcher is jax, which starts a Python script or -m MODULE, not {what}. Remove --launcher")
        if self.launcher == "torchrun" and (not python or self.tasks_per_node > 1):
            not_python = (
                f"the command {self.command} is not python" if self.command else f"{self.filename} is not a .py file"
            )
            what = f"tasks_per_node is {self.tasks_per_node}" if python else not_python
            raise wrong(
                f"{what}, and torchrun starts one Python process for each NeuronCore itself. Remove --launcher, or change that"
            )
        if self.requirements:
            try:
                packages.check_sent(self.requirements, self.workdir, self.env)
            except RequirementError as e:
                raise wrong(str(e)) from None
        words = (self.command, *self.args)
        fits(self._env_size() + sum(passable(f"argument {shown(word)}", word) for word in words))
        return self

    @property
    def label(self) -> str:
        module = _module_of((self.command, *self.args)).removesuffix(".__main__").rpartition(".")[2]
        own = module or Path(self.command if self.filename == "command" else self.filename).stem
        stem = re.sub(r"[^a-z0-9]+", "-", own.lower()).strip("-")
        return self.name or stem[:40] or "script"

    @property
    def cache_set(self) -> str:
        return self.cache_name or f"script-{self.label}"

    @property
    def processes_per_node(self) -> int:
        return self.tasks_per_node

    @property
    def prepares(self) -> bool:
        return bool(self.workdir or self.resume_from or self.own_environment or self._modules or self.has_secrets)

    @property
    def _modules(self) -> dict[str, str]:
        """The modules that its program starts, and that its packages must include; what to do about each that it does not."""
        needed = {}
        if self.launcher == "jax":
            needed["jax"] = (
                "Deploy with `bootstrap: {framework: jax}`, or on Kubernetes give an image with JAX (trn image build jax)"
            )
        top = _module_of((self.command, *self.args)).partition(".")[0]
        if top and not self.inside and top not in sys.stdlib_module_names:
            needed[top] = (
                "Send the folder that has it (--workdir), or name its package in a requirements file (--requirements)"
            )
        return needed

    @property
    def fetches(self) -> Fetches:
        return "builds" if self.own_environment else "files"

    @property
    def own_environment(self) -> bool:
        return self.requirements is not None

    @property
    def tools(self) -> str:
        return "git" if self.requirements and any("git+" in line for line in self.requirements.lines) else ""

    def describe_packages(self, cluster: Cluster) -> str:
        return packages.describe_own(self.requirements, self.image, cluster) if self.requirements else ""

    def check(self, plan: Plan) -> list[str]:
        own_image = self.image and not self.framework  # then the framework is unknown
        if self.precompile and plan.framework != "torch-xla" and not own_image:
            raise JobError(
                f"precompiling needs torch-xla (neuron_parallel_compile), but the framework is {plan.framework}. Submit it "
                "without --precompile"
            )
        if self.requirements:
            packages.check_own(plan.cluster, self.requirements.file)
        if plan.cluster.containers and self.launcher == "batch":
            raise JobError(
                f"launcher is batch, but {plan.cluster.stack} runs Kubernetes, which has no srun. Remove --launcher: the script starts on each node"
            )
        if plan.cluster.containers or self.nodes == 1 or self.launcher != "none" or not MAY_CALL.search(self.content):
            return []
        calls = sorted(calls_of(self.filename, self.content), key=lambda call: not call.sure)
        notes = [
            f"{self.inside or self.filename} {'calls' if call.sure else 'may call'} {call.command} in line {call.line}, but it starts on each of "
            f"{self.nodes} nodes, and each would call it. Add --launcher batch, which starts it once, or remove {call.command}"
            for call in calls[:1]
        ]
        if notes and calls[0].sure:
            raise JobError(notes[0])
        return notes

    @property
    def starts_once(self) -> bool:
        return self.launcher == "batch"

    @property
    def spmd(self) -> bool:
        return self.launcher == "jax"

    def files(self, plan: Plan) -> Mapping[str, bytes]:
        starter = {_JAX: sent.read(_JAX)} if self.launcher == "jax" else {}
        if self.workdir and self.workdir.commit and self.workdir.commit.diff:
            return {"uncommitted.diff": self.workdir.commit.diff, **starter}
        return starter if self.workdir or self.command else {self.filename: self.content, **starter}

    def program(self, plan: Plan) -> Program:
        place, name = (words.JOB, f"code/{self.inside}") if self.workdir else (words.FILES, self.filename)
        file: Word = (place, f"/{name}")
        if self.launcher == "torchrun":
            started = words.launch(*(() if self.command else (file,)))
        elif self.launcher == "jax":
            started = ("python3", (words.FILES, f"/{_JAX}"), *(() if self.command else (file,)))
        elif self.command:
            started = (self.command,)
        elif self.content.startswith(b"#!") and self._executable:
            started = (file,)
        else:
            started = ("python3" if self.filename.endswith(".py") else "bash", file)
        checkpoints: Word = (words.JOB, "/checkpoints")
        folder: Word = (words.JOB, "/code" if self.workdir else "/work")
        # so that the script also finds modules at the top of the folder
        modules = {"PYTHONPATH": folder} if self.workdir else {}
        commit = {"TRN_GIT_COMMIT": self.workdir.commit.id} if self.workdir and self.workdir.commit else {}
        variables: dict[str, Word] = {"TRN_CHECKPOINTS": checkpoints, "TRN_JOB_ID": (words.ID,), **commit, **modules}
        args: Words = self.args
        if self.sweep:
            variables |= sweep.variables(self.sweep)
            args = sweep.words(self.sweep, self.args)
        return Program((*started, *args), folder, variables=variables, folders=(checkpoints,))

    def prepare(self, plan: Plan) -> tuple[PrepareStep, ...]:
        needed = self.requirements
        return (
            *(fetching.code(self.workdir, plan.cluster.bucket).steps if self.workdir else ()),
            *(fetching.requirements(needed, self.workdir, plan.cluster, self.image) if needed else ()),
            *(step for module, fix in self._modules.items() for step in fetching.modules((module,), fix)),
        )

    @property
    def _executable(self) -> bool:
        """True if the nodes may start the file itself. A file that is sent alone is made executable there."""
        return not self.workdir or any(e.kind == "program" for e in self.workdir.entries if e.name == self.inside)


def _script_of(words: Sequence[str]) -> str:
    """The script that a command starts; empty: it starts none.

    >>> _script_of(("python", "train.py")), _script_of(("bin/run.sh", "-x")), _script_of(("pip", "list"))
    ('train.py', 'bin/run.sh', '')
    """
    return next((word for word in words[: 2 if words[0] in _INTERPRETERS else 1] if word.endswith((".py", ".sh"))), "")


def _module_of(words: Sequence[str]) -> str:
    """The module that a command starts, as `python -m` does; empty: it starts none."""
    return words[2] if words[0] in _PYTHONS and words[1:2] == ("-m",) and len(words) > 2 else ""


def _inside(workdir: Any, script: str, module: str) -> str:
    """The file of the folder that a command starts; empty: it starts none. Raises JobError: the folder has to have it, and has not."""
    names = {entry.name for entry in workdir.entries}
    path, top = module.replace(".", "/"), module.partition(".")[0]
    if script and not script.startswith("/"):
        inside = os.path.normpath(script)
        if inside not in names:
            raise JobError(
                f"{script[:300]} is not in {workdir.folder}, or left out of it. Give its path in that folder"
            )
        return inside
    if not module:
        return ""
    if inside := next((name for name in (f"{path}.py", f"{path}/__main__.py") if name in names), ""):
        return inside
    if f"{top}.py" in names or any(name.startswith(f"{top}/") for name in names):
        raise JobError(
            f"{workdir.folder} has no module {module[:100]}: neither {path[:100]}.py nor {path[:100]}/__main__.py is sent. Give "
            "the name as python -m takes it in that folder, for example package.train"
        )
    return ""


def _notebook(path: str) -> str:
    made = printed("jupyter", "nbconvert", "--to", "script", path)
    return (
        f"is a notebook. Convert it ({made}), remove its get_ipython() lines, and submit the .py file that this makes"
    )


def _not_runnable(name: str, content: bytes) -> str:
    """Describe why the nodes could not run a script, and what to do; empty if they can."""
    first, _, _ = content.partition(b"\n")
    if name.endswith(".ipynb"):
        return _notebook(name)
    if content.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark, which hides its first line. Save it as UTF-8 without one"
    if first.endswith(b"\r") and (first.startswith(b"#!") or not name.endswith(".py")):
        return f"has Windows line ends, which its interpreter does not understand. Convert it: sed -i 's/\\r$//' {name}"
    if b"\0" in content and not first.startswith(b"#!"):
        return "is not text. Submit a script that starts the program, which can be on the shared file system"
    return refused_directives(content, name)


def _imported_sibling(folder: Path, content: bytes) -> str:
    """The first module that a script surely imports from its folder; empty if there is none, or it is no Python."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    return next((name for name in _imported_names(tree) if _is_there(folder, name)), "")


def _imported_names(node: ast.AST) -> Iterator[str]:
    """Dotted names of what is imported. What is imported under a condition, or may fail, is left out."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (one.name for one in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield child.module
            yield from (f"{child.module}.{one.name}" for one in child.names)
        elif not isinstance(child, ast.If | ast.Try | ast.IfExp):
            yield from _imported_names(child)


def _is_there(folder: Path, name: str) -> bool:
    """Return whether Python finds a module in a folder. A folder of data may have the name of an installed package: it counts by its modules."""
    top, *below = name.split(".")
    if top in sys.stdlib_module_names:
        return False
    files = [f"{top}.py", f"{top}/__init__.py"]
    if below:
        files += [f"{top}/{below[0]}.py", f"{top}/{below[0]}/__init__.py"]
    return any((folder / file).is_file() for file in files)


KIND = Script
