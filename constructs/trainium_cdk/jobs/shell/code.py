"""The files of a submission's `--workdir`: from the bucket into a folder of the job.

code.py ADDRESS DIGEST FOLDER: the tree of that digest, from its list and packs below an s3:// address. Everything is compared with its
SHA-256. The folder appears complete, or not at all. Runs with the Python of nodes and images (3.8 and newer).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

READ = 1 << 20


def digest_of(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as content:
        for piece in iter(lambda: content.read(READ), b""):
            found.update(piece)
    return found.hexdigest()


def get(address: str, file: Path) -> Path:
    command = ["aws", "s3", "cp", "--only-show-errors", address, str(file)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return file


def unpack(address: str, packs: list[str], folder: Path) -> None:
    """The contents of the packs, as files named after their digests."""
    for pack in packs:
        file = get(f"{address}/packs/{pack}.tar.gz", folder / "pack")
        if digest_of(file) != pack:
            raise ValueError(f"the pack {pack} has another content than was sent")
        with tarfile.open(file) as members:
            for member in members:
                source = members.extractfile(member) if member.isreg() and member.name.isalnum() else None
                if source is None:
                    raise ValueError(f"the pack {pack} has something else than files")
                with (folder / member.name).open("wb") as target:
                    shutil.copyfileobj(source, target, READ)
                if digest_of(folder / member.name) != member.name:
                    raise ValueError(f"a file of the pack {pack} has another content than was sent")
        file.unlink()


def make(entries: list[list[str]], contents: Path, folder: Path) -> None:
    folder.mkdir()
    for name, kind, digest in entries:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            place.symlink_to(os.fsdecode((contents / digest).read_bytes()))
        else:
            shutil.copyfile(contents / digest, place)
            place.chmod(0o755 if kind == "program" else 0o644)


def main(address: str, digest: str, target: str) -> None:
    part = Path(f"{target}.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "contents").mkdir(parents=True)
    tree: Any = json.loads(get(f"{address}/trees/{digest}.json", part / "list").read_text("utf-8"))
    if hashlib.sha256(json.dumps(tree["entries"]).encode()).hexdigest() != digest:
        raise ValueError("the list of its files is not the one that was sent")
    unpack(address, sorted(tree["packs"]), part / "contents")
    make(tree["entries"], part / "contents", part / "code")
    (part / "code").rename(target)
    shutil.rmtree(part)
    print(f"trn: {len(tree['entries'])} files of the workdir are in {target}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, TypeError, subprocess.CalledProcessError, tarfile.TarError) as e:
        sys.exit(f"trn: the workdir cannot be fetched: {e}")
