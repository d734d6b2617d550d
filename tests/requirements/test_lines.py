"""The lines of requirements files: what is read of each, and what is refused, with an advice that works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from trainium_cdk.requirements import RequirementError, of_lines, read

SHA = "0123456789abcdef0123456789abcdef01234567"
HASH = "--hash=sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("line", "sent", "name"),
    [
        ("einops", "einops", "einops"),
        ("Einops==0.8.1", "Einops==0.8.1", "einops"),
        ("transformers>=4.40,<5", "transformers<5,>=4.40", "transformers"),
        ("transformers >= 4.40, < 5", "transformers<5,>=4.40", "transformers"),
        ("numpy~=1.26", "numpy~=1.26", "numpy"),
        ("wandb==0.21.*", "wandb==0.21.*", "wandb"),
        ("vllm==0.11.0+cpu", "vllm==0.11.0+cpu", "vllm"),
        ("accelerate[test_prod, rich]>1", "accelerate[rich,test_prod]>1", "accelerate"),
        ("tomli; python_version < '3.11'", 'tomli; python_version < "3.11"', "tomli"),
        ("torch==2.4 ; sys_platform == 'darwin'", 'torch==2.4; sys_platform == "darwin"', "torch"),
        (f"peft @ git+https://github.com/huggingface/peft@{SHA}", f"peft @ git+https://github.com/huggingface/peft@{SHA}", "peft"),
        ("peft@git+https://github.com/huggingface/peft", "peft @ git+https://github.com/huggingface/peft", "peft"),
        ("git+https://github.com/o/r.git@v1#egg=Own_Name", "git+https://github.com/o/r.git@v1#egg=Own_Name", "own-name"),
        ("git+https://github.com/o/r#subdirectory=py", "git+https://github.com/o/r#subdirectory=py", ""),
        ("git+ssh://git@github.com/o/r.git", "git+ssh://git@github.com/o/r.git", ""),
        ("-e git+https://github.com/o/r#egg=r", "git+https://github.com/o/r#egg=r", "r"),
        ("https://h.org/einops-0.8.1-py3-none-any.whl", "https://h.org/einops-0.8.1-py3-none-any.whl", "einops"),
        ("https://h.org/einops-0.8.1.tar.gz", "https://h.org/einops-0.8.1.tar.gz", "einops"),
        ("x @ https://h.org/x.zip ; python_version>'3'", 'x @ https://h.org/x.zip ; python_version > "3"', "x"),
        ("https://name:${TOKEN}@h.org/x-1.0-py3-none-any.whl", "https://name:${TOKEN}@h.org/x-1.0-py3-none-any.whl", "x"),
        (f"einops==0.8.1 {HASH}", f"einops==0.8.1 {HASH}", "einops"),
        ("x==1 --config-settings=a=b", "x==1 --config-settings=a=b", "x"),
        ("einops # a comment", "einops", "einops"),
        (".", "./code", ""),
        ("-e .[dev]", "./code[dev]", ""),
        ("./libs/own", "./code/libs/own", ""),
        ("wheels/own-1.0-py3-none-any.whl", "./code/wheels/own-1.0-py3-none-any.whl", "own"),
        ("own-1.0-py3-none-any.whl", "./code/own-1.0-py3-none-any.whl", "own"),
        ("/efs/own-1.0-py3-none-any.whl", "/efs/own-1.0-py3-none-any.whl", "own"),
    ],
)  # fmt: skip
def test_a_requirement_is_read(line: str, sent: str, name: str) -> None:
    [one] = of_lines([line]).lines
    text = str(Requirement(sent)) if " @ " in sent else sent  # `packaging` before 26 writes no space before the @
    assert (one.sent("./code"), one.name) == (text, name)


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("--extra-index-url https://h.org/simple", ["--extra-index-url https://h.org/simple"]),
        ("-i https://h.org/simple", ["--index-url https://h.org/simple"]),
        ("-i=https://name:${TOKEN}@h.org/s", ["--index-url 'https://name:${TOKEN}@h.org/s'"]),
        ("--find-links=./wheels", ["--find-links ./code/wheels"]),
        ("-f wheels", ["--find-links ./code/wheels"]),
        ("--no-index --pre", ["--no-index", "--pre"]),
        ("--only-binary :all:", ["--only-binary :all:"]),
        ("--require-hashes", ["--require-hashes"]),
        ("--trusted-host h.org", ["--trusted-host h.org"]),
    ],
)
def test_an_option_is_read(line: str, sent: list[str]) -> None:
    options = [one.sent("./code") for one in of_lines([line.replace("-i=", "-i "), "einops"]).lines if one.option]
    assert sorted(options) == sorted(sent)


TOKEN = "pypi-s3cret"
REFUSED = [
    ("numpy=1.26", "has one = where pip compares with two. Write numpy==1.26"),
    ("numpy=1.26=py312_0", "Write numpy==1.26"),
    ("numpy 1.26", "has a version without a comparison. Write numpy==1.26"),
    ("wandb>=0.21.*", "Write wandb>=0.21"),
    ("einops torch", "has several words. Write each package in a line of its own, for example einops==0.8.1"),
    ("pip install einops", "is a command. Write the requirement alone, for example einops==0.8.1"),
    ("transformers[torch", "for example einops==0.8.1"),
    ("einops==", "for example einops==0.8.1"),
    ("einops; python>3", "for example einops==0.8.1"),
    (".; python>3", 'write one as pip takes it, for example python_version < "3.13"'),
    ("--upgrade einops", "an option that pip does not take in a requirements file"),
    ("einops --pre", "has a requirement and an option. Write each in a line of its own"),
    (HASH, "--hash stands without a requirement"),
    ("x @ ./own.whl", "write the path alone: ./own.whl"),
    ("~/own.whl", "for example ./wheels/own.whl"),
    ("C:\\wheels\\own.whl", "for example ./wheels/own.whl"),
    ("../own", "leads out of the folder of the code"),
    ("git@github.com:o/r.git", "Write git+ssh://git@github.com/o/r.git"),
    ("s3://bucket/own.whl", "Copy it to the cluster (trn cp), and write its path there"),
    ("-i h.org/simple", "Write one that begins with https://"),
    ("-r other.txt", "-r works in a file only"),
    (f"-i https://{TOKEN}@h.org/simple", "write a variable in its place, https://name:${TOKEN}@h.org/..., and give it to the job: --env TOKEN"),
    (f"--extra-index-url=https://me:{TOKEN}@h.org/simple", "--env TOKEN"),
    (f"-f https://h.org/simple?token={TOKEN}", "--env TOKEN"),
    (f"x @ git+https://{TOKEN}@h.org/o/r", "--env TOKEN"),
    (f"git+https://oauth2:{TOKEN}@h.org/o/r@main", "--env TOKEN"),
    (f"https://h.org/x-1.0.zip?X-Amz-Signature={TOKEN}", "--env TOKEN"),
    (f"einops ! https://me:{TOKEN}@h.org", "begins with https://"),
    (f"--wrong https://me:{TOKEN}@h.org", "an option that pip does not take"),
    ("-i https://name:${token}@h.org/simple", "--env TOKEN"),
    ("https://h.org/$TOKEN/x-1.0.zip", "Write ${TOKEN}, in capital letters and with braces"),
    ("https://h.org/${TOKEN}/x-1.0.zip", "Write it before the host, as https://name:${TOKEN}@host/..."),
    ("# nothing", "names no package"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_what_pip_does_not_take_is_refused_with_an_advice(line: str, message: str) -> None:
    with pytest.raises(RequirementError) as raised:
        of_lines([line])
    said = str(raised.value)
    assert message.lower() in said.lower()
    assert TOKEN not in said
    assert not re.search(r"\^|\[A-Z|\\", said.replace(line, ""))  # no regular expression


@pytest.mark.parametrize("line", ["numpy=1.26", "numpy=1.26=py312_0", "numpy 1.26", "wandb>=0.21.*", "git@github.com:o/r.git", "x @ ./own.whl"])  # fmt: skip
def test_following_the_advice_works(line: str) -> None:
    with pytest.raises(RequirementError) as raised:
        of_lines([line])
    of_lines([raised.value.fix.removeprefix("write ").removeprefix("the path alone: ")])


def test_the_advice_about_passwords_works() -> None:
    with pytest.raises(RequirementError) as raised:
        of_lines([f"-i https://{TOKEN}@h.org/simple", "einops"])
    [address] = re.findall(r"https://\S+\.\.\.", str(raised.value))
    assert of_lines([f"-i {address}", "einops"]).variables == {"TOKEN": "requirements line 1"}


def write(folder: Path, **files: str | bytes) -> Path:
    for name, content in files.items():
        file = folder / f"{name}.txt"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "requirements.txt"


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (f"einops==0.8.1 \\\n    {HASH} \\\n    --hash=sha256:00\n", [f"einops==0.8.1 {HASH}      --hash=sha256:00"]),
        ("einops  # why\r\n\r\n#numpy\r\npeft\r\n", ["einops", "peft"]),
        ("\ufeffeinops\n", ["einops"]),
        ("einops\npeft\n".encode("utf-16"), ["einops", "peft"]),
        ("einops>=0.8, \\\n  <1", ["einops<1,>=0.8"]),
        ("einops \\\n# in between\npeft", ["einops", "peft"]),
    ],
)
def test_the_form_of_a_file(content: str | bytes, lines: list[str], tmp_path: Path) -> None:
    found = read(write(tmp_path, requirements=content))
    assert [re.sub(" +", " ", line.text) for line in found.lines] == [re.sub(" +", " ", line) for line in lines]


def test_included_files_are_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    write(tmp_path / "more", other="peft\n-c versions.txt\n", versions="numpy<2\n")
    found = read(
        write(
            tmp_path, requirements="-r more/other.txt\neinops\n--constraint limits.txt\n", limits="tokenizers==0.21\n"
        )
    )
    assert [line.text for line in found.lines] == ["peft", "einops"]
    assert [line.text for line in found.constraints] == ["numpy<2", "tokenizers==0.21"]
    assert found.lines[0].at == f"{tmp_path}/more/other.txt line 1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("-r absent.txt", "absent.txt is not there"),
        ("-r requirements.txt", "requirements.txt line 1: requirements.txt includes itself"),
        ("-r https://h.org/other.txt?t=1", "download it, and write -r other.txt"),
        ("einops\n-c https://h.org/limits.txt", "line 2: -c names an address, whose content may change"),
        (b"\xff\xfe\x00", "is not text"),
        (b"einops\xff", "is not text. Save it as UTF-8"),
        ("", "requirements.txt names no package"),
        ("einops\n" * 100_000, "has more than 500,000 bytes"),
    ],
)
def test_a_file_that_cannot_be_sent_is_refused(content: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(RequirementError) as raised:
        read(write(tmp_path, requirements=content))
    assert message.lower() in str(raised.value).lower()


@pytest.mark.parametrize("name", ["absent.txt", "", "a\0b", "pyproject.toml", "uv.lock"])
def test_what_is_no_file_of_requirements_is_refused(name: str, tmp_path: Path) -> None:
    for there in ("pyproject.toml", "uv.lock"):
        (tmp_path / there).write_text("[project]\n")
    with pytest.raises(RequirementError):
        read(tmp_path / name)
