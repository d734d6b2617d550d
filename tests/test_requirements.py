"""What pip gets of a user's requirements, and what is refused here: what pip would not see, and plain requirements that it does not take."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainium_cdk.description.requirements import entry, read
from trainium_cdk.errors import RequirementError

HASH = "--hash=sha256:" + "ab" * 32
TOKEN = "pypi-s3cret"


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        (folder / f"{name}.txt").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "requirements.txt"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (f"einops==0.8.1 \\\n    {HASH} \\\n    --hash=sha256:00\n", [f"einops==0.8.1 {HASH} --hash=sha256:00"]),
        ("einops  # why\r\n\r\n#numpy\r\npeft\r\n", ["einops", "peft"]),
        ("\ufeffeinops\n", ["einops"]),
        ("einops \\\n# in between\npeft", ["einops", "peft"]),
        ("https://h.org/\\\nx-1.0.zip", ["https://h.org/x-1.0.zip"]),
    ],
)
def test_the_form_of_a_file(content: str, lines: list[str], tmp_path: Path) -> None:
    assert read(write(tmp_path, requirements=content)).lines == lines


@pytest.mark.parametrize(
    "line",
    [
        "Transformers[torch] >= 4.40, < 5",
        "tomli; python_version < '3.11'",
        "peft @ git+https://github.com/huggingface/peft@main",
        "git+https://github.com/o/r#egg=r",
        "git+ssh://git@github.com/o/r",
        "https://h.org/x-1.0.zip?monkey=1#sha256=aa",
        "x @ https://h.org/$x.zip",
        "./own[dev]",
        "own-1.0-py3-none-any.whl",
        "--index-url https://name:${TOKEN}@h.org/simple",
        "-i https://h.org/${TOKEN}/simple",
        "--no-binary :all:",
        "--an-option-of-tomorrow",
        f"einops==0.8.1 {HASH}",
    ],
)
def test_lines_are_kept_as_they_are(line: str) -> None:
    assert read([line, "einops"]).lines == [line, "einops"]


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("-e .[dev]", ".[dev]"),
        ("-e own", "./own"),
        ("--editable=git+https://github.com/o/r#egg=r", "git+https://github.com/o/r#egg=r"),
    ],
)
def test_nothing_is_editable_as_jobs_share_the_environment(line: str, kept: str) -> None:
    assert read([line]).lines == [kept]


def test_included_files_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", other="peft\n-cversions.txt\n", versions="numpy<2\n")
    text = "-r more/other.txt\neinops\n--constraint limits.txt\n"
    found = read(write(tmp_path, requirements=text, limits="tokenizers==0.21\n"))
    assert (found.lines, found.constraints) == (["peft", "einops"], ["numpy<2", "tokenizers==0.21"])


REFUSED = [
    ("-r absent.txt", "absent.txt: No such file"),
    ("-r requirements.txt", "requirements.txt line 1: requirements.txt includes itself"),
    ("einops\n-c https://h.org/other.txt?t=1", "requirements.txt line 2: -c names an address, whose content may change. Download it"),
    (b"einops\xff", "save it as UTF-8"),
    ("", "requirements.txt names no package"),
    ("einops\n" * 100_000, "has more than 500,000 bytes"),
    (f"-i https://{TOKEN}@h.org/simple\neinops", "--env TOKEN"),
    (f"--extra-index-url=https://me:{TOKEN}@h.org/simple\neinops", "--env TOKEN"),
    (f"x @ git+https://oauth2:{TOKEN}@h.org/o/r@main", "--env TOKEN"),
    (f"https://h.org/x-1.0.zip?X-Amz-Signature={TOKEN}", "--env TOKEN"),
    (f"https://h.org/x-1.0.zip?v=1&sig={TOKEN}", "--env TOKEN"),
    ("https://me:$TOKEN@h.org/x-1.0.zip", "https://name:${TOKEN}@host/..."),
    ("https://h.org/x-1.0.zip?sig=${TOKEN}", "Write it before the host, as https://name:${TOKEN}@host/..."),
    ("x @ https://h.org/${TOKEN}/x-1.0.zip", "pip would write the variable's value next to the installed package"),
    ("einops \\\n # why\nnumpy=1.26", "requirements.txt line 3: numpy=1.26 is not a requirement that pip takes ("),
    ("numpy 1.26", "for example einops==0.8.1"),
    ("einops torch", "for example einops==0.8.1"),
    ("pip install einops", "for example einops==0.8.1"),
    ("wandb>=0.21.*", "for example einops==0.8.1"),
    ("transformers[torch", "for example einops==0.8.1"),
    (f"einops== {HASH}", "line 1: einops== is not a requirement"),
    ("einops; python>3", "for example einops==0.8.1"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_is_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequirementError) as raised:
        read(write(tmp_path, requirements=content))
    assert message.lower() in str(raised.value).lower()
    assert TOKEN not in str(raised.value)


def test_the_advices_work() -> None:
    examples = ["einops==0.8.1", "transformers>=4.40,<5", "https://name:${TOKEN}@h.org/x-1.0.zip"]
    found = read(examples)
    assert (found.lines, found.variables) == (examples, ["TOKEN"])
    with pytest.raises(RequirementError, match="-r works in a file only"):
        read(["-r other.txt"])


@pytest.mark.parametrize("name", ["absent.txt", "", "a\0b", "poetry.lock", "environment.yml"])
def test_what_is_no_file_of_requirements_is_refused(name: str, tmp_path: Path) -> None:
    for file in ("poetry.lock", "environment.yml"):
        (tmp_path / file).write_text("[project]\n")
    with pytest.raises(RequirementError):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "kept", "name"),
    [
        ("Einops==0.8.1", "Einops==0.8.1", "einops"),
        ("tomli ; python_version<'3.11'", 'tomli; python_version < "3.11"', "tomli"),
        ("--extra-index-url https://h.org/simple", "--extra-index-url=https://h.org/simple", ""),
        ("git+https://github.com/o/r@main", "git+https://github.com/o/r@main", ""),
    ],
)
def test_an_entry_of_the_nodes(text: str, kept: str, name: str) -> None:
    assert entry(text) == (kept, name)
    assert entry(kept) == (kept, name)
