"""The frozen entry script: what it downloads, keeps, passes on and refuses."""

from __future__ import annotations

import hashlib
import io
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.node import SERVER, Node
from trainium_cdk.description.node.scripts import ENTRY, scripts_dir

FROZEN = "de39af7fb44f672a95131ca644785896c42a6cb8444e8b3d0668bb423b20003e"

# A fake AWS command line: "s3 cp" from this node's web server and "ssm get-parameter" from a file, failing
# as often as another file specifies.
AWS = f"""#!/usr/bin/python3
import pathlib, sys, urllib.request
calls = pathlib.Path("/etc/standin/aws-calls")
calls.write_text((calls.read_text() if calls.exists() else "") + sys.argv[4] + "\\n")
failures = pathlib.Path("/etc/standin/aws-failures")
left = int(failures.read_text()) if failures.exists() else 0
if left:
    failures.write_text(str(left - 1))
    sys.exit("fatal error: Unable to locate credentials")
if sys.argv[1:4] == ["s3", "cp", "--only-show-errors"]:
    url = "{SERVER}/s3/" + sys.argv[4].removeprefix("s3://")
    pathlib.Path(sys.argv[5]).write_bytes(urllib.request.urlopen(url).read())
elif sys.argv[1:4] + sys.argv[5:] == "ssm get-parameter --name --query Parameter.Value --output text".split():
    print(pathlib.Path("/etc/standin/ssm" + sys.argv[4]).read_text())
else:
    sys.exit(f"not an aws command of the entry script: {{sys.argv}}")
"""


def test_the_entry_script_is_frozen() -> None:
    digest = hashlib.sha256((scripts_dir() / ENTRY).read_bytes()).hexdigest()
    assert digest == FROZEN, (
        "bootstrap/entry.sh changed. ParallelCluster refuses an update that changes the head node's script, so every "
        "deployed cluster would have to be replaced. Put the change into configure-node.sh or lib/ instead. If it "
        "must be here, publish it under a NEW S3 key, keep the old file for existing clusters, and set this hash."
    )


@pytest.fixture
def node(new_node: NewNode, vendor: object, tmp_path: Path) -> Node:
    made = new_node()
    made.become("LoginNode")
    made.write("/usr/local/bin/aws", AWS, 0o755)
    return made


def publish(node: Node, folder: Path, *, mark: str) -> str:
    """Zip the node's scripts as the deployment does (without executable bits) and put them behind s3://bucket/SHA256.zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in sorted(scripts_dir().rglob("*.*")):
            if file.is_file() and file.name != ENTRY and "__pycache__" not in file.parts:
                archive.writestr(str(file.relative_to(scripts_dir())), file.read_text())
        archive.writestr("node.env", node.read("/opt/trn/node.env") + f"TRN_NEURON_SDK='{mark}'\n")
    return put(folder, packed.getvalue())


def put(folder: Path, content: bytes, name: str = "") -> str:
    """Put a file behind s3://bucket/NAME.zip, by default named after its content."""
    name = name or hashlib.sha256(content).hexdigest()
    target = folder / "s3" / "bucket" / f"{name}.zip"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return f"s3://bucket/{name}.zip"


def name_of(url: str) -> str:
    return url.rpartition("/")[2].removesuffix(".zip")


@pytest.fixture
def bucket(vendor: object) -> Path:
    return Path(vendor.folder)  # type: ignore[attr-defined]


def test_it_downloads_once_and_passes_the_arguments_on(node: Node, bucket: Path) -> None:
    url = publish(node, bucket, mark="2.31.0")
    node.write("/etc/standin/aws-failures", "2")
    first = node.run("/opt/trn/entry.sh", url, "TRN_NODE_ROLE=login", env={"TRN_ENTRY_RETRY_DELAY": "0"})
    assert first.code == 0, first.err
    assert f"attempt 2 to download {url} failed, next in 0 s: fatal error: Unable to locate credentials" in first.out
    assert node.status()["arguments"] == "TRN_NODE_ROLE=login"
    assert node.path(f"/opt/trn-bootstrap/{name_of(url)}/configure-node.sh").stat().st_mode & 0o7777 == 0o755
    second = node.run("/opt/trn/entry.sh", url)
    assert second.code == 0, second.err
    assert node.read("/etc/standin/aws-calls").splitlines() == [url] * 3
    assert node.status()["changes"] == []

    other = publish(node, bucket, mark="2.33.0")
    assert node.run("/opt/trn/entry.sh", other).code == 0
    assert node.status()["neuron_sdk"] == "2.33.0"
    assert node.run("readlink", "/opt/trn-bootstrap/current").out == f"{name_of(other)}\n"
    present = {p.name for p in node.path("/opt/trn-bootstrap").iterdir()}
    assert present == {name_of(url), name_of(other), "current"}


def test_a_head_node_reads_the_current_address_of_the_scripts(node: Node, bucket: Path) -> None:
    pointer = "/trainium/trn-slurm/node-scripts"
    for release in ("2.31.0", "2.33.0"):
        node.write(f"/etc/standin/ssm{pointer}", publish(node, bucket, mark=release))
        done = node.run("/opt/trn/entry.sh", f"ssm://{pointer}")
        assert done.code == 0, done.err
        assert node.status()["neuron_sdk"] == release


def test_a_failing_node_fails_the_entry(node: Node, bucket: Path) -> None:
    url = publish(node, bucket, mark="2.31.0")
    done = node.run("/opt/trn/entry.sh", url, "TRN_MOUNTS=/fsx")
    assert done.code != 0
    assert "step 'check-mounts' failed on login node" in done.err


OTHER_ZIP = io.BytesIO()
with zipfile.ZipFile(OTHER_ZIP, "w") as _archive:
    _archive.writestr(zipfile.ZipInfo("readme", (1980, 1, 1, 0, 0, 0)), "")
NO_ZIP, ABSENT = b"no zip", "0" * 64
BROKEN, OTHER = (hashlib.sha256(content).hexdigest() for content in (NO_ZIP, OTHER_ZIP.getvalue()))
CHANGED = "f" * 64
REFUSALS = {
    "no argument": ([], "the first argument must be s3://BUCKET/PREFIX/SHA256.zip or ssm://PARAMETER, got ''"),
    "a name that is no hash": (["s3://bucket/scripts.zip"], "got 's3://bucket/scripts.zip'"),
    "changed since it was published": (
        [f"s3://bucket/{CHANGED}.zip"],
        f"s3://bucket/{CHANGED}.zip is not the file it is named after (its SHA-256 is {OTHER}); deploy the stack again",
    ),
    "not S3": (["https://example.com/a.zip"], "got 'https://example.com/a.zip'"),
    "not there": ([f"s3://bucket/{ABSENT}.zip"], f"cannot download s3://bucket/{ABSENT}.zip after 6 attempts"),
    "no such parameter": (["ssm:///absent"], "cannot read the SSM parameter /absent after 6 attempts"),
    "a parameter with something else": (
        ["ssm:///odd"],
        "the SSM parameter /odd must hold s3://BUCKET/PREFIX/SHA256.zip, it holds 'hello'",
    ),
    "not a zip": ([f"s3://bucket/{BROKEN}.zip"], f"s3://bucket/{BROKEN}.zip is not a readable zip file"),
    "another zip": ([f"s3://bucket/{OTHER}.zip"], f"s3://bucket/{OTHER}.zip holds no configure-node.sh"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_it_refuses(node: Node, bucket: Path, name: str) -> None:
    arguments, message = REFUSALS[name]
    put(bucket, NO_ZIP)
    put(bucket, OTHER_ZIP.getvalue())
    put(bucket, OTHER_ZIP.getvalue(), CHANGED)
    node.write("/etc/standin/ssm/odd", "hello\n")
    done = node.run("/opt/trn/entry.sh", *arguments, env={"TRN_ENTRY_RETRY_DELAY": "0"})
    assert done.code == 1
    assert message in done.err
    assert message in done.out  # all that ParallelCluster keeps of a head node's script
    base = node.path("/opt/trn-bootstrap")
    assert not base.exists() or list(base.iterdir()) == []


def test_an_image_without_the_aws_command_line_is_named(node: Node) -> None:
    shutil.move(node.path("/usr/local/bin/aws"), node.path("/usr/local/bin/aws.gone"))
    done = node.run("/opt/trn/entry.sh", f"s3://bucket/{ABSENT}.zip")
    assert done.code == 1
    assert "'aws' is not on this image" in done.err
