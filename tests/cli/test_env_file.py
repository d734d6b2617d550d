"""`--env-file`: lines are read as Docker Compose and python-dotenv read them, and no message has a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_submit import made
from trainium_cdk.client.cli.job_file import read_variables
from trainium_cdk.errors import JobError

READ = [
    ("A=1\nB=two words\n", {"A": "1", "B": "two words"}),
    ("# one\n\n  # two\nA=1", {"A": "1"}),
    ("export A=1\nexport\tB=2\n", {"A": "1", "B": "2"}),
    ("A = 1 \nB=\nC= # none\n", {"A": "1", "B": "", "C": ""}),
    ("A=1 # why\nB=1#2\nC=#3\nD='1' # why\n", {"A": "1", "B": "1#2", "C": "#3", "D": "1"}),
    ("A='a b'\nB=\"a b\"\nC=a=b\nD=a'b\nE=''\n", {"A": "a b", "B": "a b", "C": "a=b", "D": "a'b", "E": ""}),
    (r"""A="a\nb\t\"c\" \\ \$x"
B='a\nb'
C=a\nb""", {"A": 'a\nb\t"c" \\ $x', "B": r"a\nb", "C": r"a\nb"}),
    ("A='line 1\nline 2'\nB=\"x\ny\"\nC=1\n", {"A": "line 1\nline 2", "B": "x\ny", "C": "1"}),
    ("A=a$b$\nB=$(id)\nC=`id`\nD='${A}'\nE=\"\\${A}\"\n", {"A": "a$b$", "B": "$(id)", "C": "`id`", "D": "${A}", "E": "${A}"}),
    ("A=1\r\nB='2'\r\n", {"A": "1", "B": "2"}),
    ("\ufeffA=1\n", {"A": "1"}),
    ("A=1\nA=2\n", {"A": "2"}),
    ("HERE\nexport HERE2 # why\n", {"HERE": "of the shell", "HERE2": ""}),
    ("A=ü日\n", {"A": "ü日"}),
    ("", {}),
]  # fmt: skip


@pytest.mark.parametrize(("text", "variables"), READ)
def test_the_form_of_a_file(
    text: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERE", "of the shell")
    monkeypatch.setenv("HERE2", "")
    (tmp_path / ".env").write_bytes(text.encode())
    assert read_variables(tmp_path / ".env") == variables


REFUSED = [
    ("A=1\nsecret words\n", "line 2 is not a variable. Write NAME=VALUE"),
    ("A: secret\n", "line 1 is not a variable"),
    ("my-key=secret\n", "line 1 is not a variable"),
    ("=secret\n", "line 1 is not a variable"),
    ("# x\n\nA='secret\n", "line 3: the value of A has a quote without its end"),
    ("A='it's secret'\n", "line 1: the value of A has a quote without its end, or text after it"),
    ('A="secret" secret\n', "line 1: the value of A has a quote"),
    ("A=secret\nB=${A}\n", "line 2: B has ${...}, which nothing replaces here. Write the value itself; in single quotes, ${ is part of it"),
    ('B="x${A:-secret}"\n', "line 1: B has ${...}"),
    ("NOT_SET\n", "line 1 has a name without a value, and your shell does not set it. Write NAME=VALUE, or set it"),
    ("A=1\nhf_secret\n", "line 2 has a name without a value"),
    ("A=1\nexport hf_secret # of the hub\n", "line 2 has a name without a value"),
    (b"A=\xff\n", "is not text. Save it as UTF-8"),
    ("A=" + "x" * 1_000_000, "has more than 1,000,000 bytes"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=[str(i) for i in range(len(REFUSED))])
def test_what_is_no_variable_is_refused_without_its_text(text: str | bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(JobError) as raised:
        read_variables(tmp_path / ".env")
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("name", ["absent", "", "a\0b"])
def test_a_file_that_cannot_be_read_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"cannot read --env-file .* Check the path"):
        read_variables(Path(f"{tmp_path}/{name}"))


def test_what_is_given_by_itself_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in {"one": "A=1\nB=1\nC=1\n", "two": "B=2\nC=2\n", "run.py": "1\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    job, _ = made(monkeypatch, ["run.py", "--env-file", "one", "--env-file", "two", "--env", "C=3"])
    assert job.env == {"A": "1", "B": "2", "C": "3"}
    assert made(monkeypatch, ["bert-large", "--env-file", "one"])[0].env["A"] == "1"


def test_a_name_that_a_job_may_not_have_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RANK=3\n")
    with pytest.raises(JobError, match="env RANK: it is set for each process"):
        made(monkeypatch, ["bert-large", "--env-file", str(tmp_path / ".env")])
