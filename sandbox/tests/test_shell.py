"""Shells of the local AWS, in a real bash: in case of any error, they never use the user's own account."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.__main__ import main
from sandbox.paths import HOME as ROOT
from sandbox.shell import nowhere
from sandbox.testing import completed

ASK = "aws sts get-caller-identity --query Account --output text"


class Account(ThreadingHTTPServer):
    """Represents AWS with the user's own account: counts the requests that reach it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Counting)
        self.requests = 0

    @property
    def variables(self) -> dict[str, str]:
        """A shell with credentials of that account, in every way in which it can have them."""
        endpoint = f"http://127.0.0.1:{self.server_port}"
        return {
            "AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_STS": endpoint, "AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-1", "AWS_ACCESS_KEY_ID": "AKIAREAL",
            "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real", "CDK_DEFAULT_ACCOUNT": "111122223333",
        }  # fmt: skip


class _Counting(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        if isinstance(self.server, Account):
            self.server.requests += 1
        self.send_error(418)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is logged."""


@pytest.fixture
def account() -> Iterator[Account]:
    with Account() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder whose start-up file and profile select the user's own account."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text("[default]\naws_access_key_id=AKIAREAL\naws_secret_access_key=real\n")
    (tmp_path / ".bashrc").write_text("export AWS_PROFILE=default AWS_ACCESS_KEY_ID=AKIAREAL; PS1='mine> '\n")
    return tmp_path


def bash(script: str, account: Account, home: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(home),
        **account.variables,
        **more,
    }
    return completed(["bash", "-c", script], cwd=ROOT, env=env, timeout=600)


def test_the_plain_shell_uses_the_users_account(account: Account, home: Path) -> None:
    """What the tests below would see if anything slipped through."""
    assert bash(ASK, account, home, AWS_MAX_ATTEMPTS="1").returncode != 0
    assert account.requests == 1


def test_after_a_failed_eval_nothing_reaches_the_account(account: Account, home: Path, tmp_path: Path) -> None:
    done = bash(
        f'eval "$(python -m sandbox env --dir {tmp_path})"; echo "eval: $?"; {ASK}; echo "aws: $?"; '
        f'AWS_REGION=us-east-1 AWS_DEFAULT_REGION=us-east-1 AWS_PROFILE=default {ASK}; echo "profile: $?"',
        account, home,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["eval: 1", "aws: 255", "profile: 255"], done
    assert f"no local AWS is running in {tmp_path}" in done.stderr
    assert "This shell cannot reach AWS now" in done.stderr
    assert account.requests == 0


@pytest.mark.parametrize(
    "options", ["--dri {running}", "--dir {dead}", "--dir", "--region", "more words", "--dir {broken}"]
)
@pytest.mark.sweep
def test_if_env_fails_the_shell_has_no_account(options: str, account: Account, home: Path, tmp_path: Path) -> None:
    for name, state in (("dead", '{"endpoint": "http://127.0.0.1:1", "region": "r", "pid": 4194305}'), ("broken", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.json").write_text(state)
    places = {name: shlex.quote(str(tmp_path / name)) for name in ("running", "dead", "broken")}
    done = bash(f'eval "$(python -m sandbox env {options.format(**places)})"; echo "eval: $?"; env', account, home)
    first, *variables = done.stdout.splitlines()
    assert first == "eval: 1", done
    ours = {line for line in variables if line.startswith(("AWS_", "CDK_"))}
    assert {line.partition("=")[0] for line in ours} == {
        "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED", "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE", "AWS_MAX_ATTEMPTS", "AWS_REGION", "AWS_DEFAULT_REGION",
    }  # fmt: skip
    assert {"AWS_ENDPOINT_URL=http://127.0.0.1:1", "AWS_ACCESS_KEY_ID=none"} <= ours


@pytest.mark.sweep
def test_each_sandbox_gives_its_own_shell(account: Account, home: Path, local_aws: LocalAws, tmp_path: Path) -> None:
    """Two of them: the emulator is the same, the folder and the region are not."""
    state = json.loads((local_aws.directory / "state.json").read_text())
    (tmp_path / "other").mkdir()
    (tmp_path / "other/state.json").write_text(json.dumps({**state, "region": "us-west-2"}))
    seen = []
    for folder in (local_aws.directory, tmp_path / "other"):
        show = f'{ASK} && echo "$AWS_ENDPOINT_URL $AWS_REGION $TRN_SANDBOX_DIR ${{AWS_ENDPOINT_URL_STS-none}}"'
        evaluated = bash(f'eval "$(python -m sandbox env --dir {folder})" && {show}', account, home)
        opened = bash(f"python -m sandbox shell --dir {folder} -- bash -c {shlex.quote(show)}", account, home)
        assert evaluated.stdout == opened.stdout, (evaluated, opened)
        seen.append(evaluated.stdout.splitlines())
    assert seen == [
        ["000000000000", f"{local_aws.endpoint} us-east-1 {local_aws.directory} none"],
        ["000000000000", f"{local_aws.endpoint} us-west-2 {tmp_path / 'other'} none"],
    ]
    assert account.requests == 0


@pytest.mark.sweep
def test_an_interactive_shell_shows_where_it_is(account: Account, home: Path, local_aws: LocalAws) -> None:
    done = bash(
        f"echo 'echo \"<$PS1> $AWS_ENDPOINT_URL ${{AWS_PROFILE-none}} $AWS_ACCESS_KEY_ID $TRN_ENV ${{TRN_STACK-none}}\"' "
        f"| python -m sandbox shell --dir {local_aws.directory}",
        account, home, SHELL="/bin/bash", TRN_ENV="mine.yaml", TRN_STACK="mine",
    )  # fmt: skip
    assert f"<(local AWS) mine> > {local_aws.endpoint} none test mine.yaml none" in done.stdout, done
    assert "it uses the environment file mine.yaml (TRN_ENV)" in done.stderr
    assert account.requests == 0


def test_env_needs_only_the_standard_library(tmp_path: Path) -> None:
    """`env` is safe under any Python: it imports the standard library only."""
    done = completed([sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); sys.argv = ['sandbox', 'env', '--dir', "
         f"{str(tmp_path)!r}]; from sandbox.__main__ import main; sys.exit(main())"], timeout=600)  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (2, nowhere()), done


def test_a_region_is_not_changed_under_a_running_one(local_aws: LocalAws, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--dir", str(local_aws.directory), "--region", "us-west-2"]) == 2
    stderr = capsys.readouterr().err
    assert "a local AWS with region us-east-1 is running in" in stderr
    assert f"python -m sandbox down --dir {local_aws.directory}" in stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--region", "x y"], "--region is 'x y', which is not a region of AWS. Give one such as us-west-2\n"),
        (["--dir", "{file}"], "{file}/tmp: Not a directory. Give your own folder with --dir\n"),
    ],
)
def test_a_start_that_cannot_be(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "file").touch()
    where = [] if "--dir" in arguments else ["--dir", str(tmp_path / "aws")]
    assert main(["up", *where, *(argument.format(file=file) for argument in arguments)]) == 2
    assert capsys.readouterr().err.endswith(message.format(file=file))
    assert list(tmp_path.iterdir()) == [file]
