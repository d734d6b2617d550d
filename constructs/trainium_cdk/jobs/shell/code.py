"""The files of a submission's `--workdir`: from the bucket into a folder of the job.

code.py ADDRESS DIGEST FOLDER check|fetch: the tree of that digest, from its list and packs below an s3:// address. Everything is compared
with its SHA-256. The folder appears complete, or not at all. Runs with the Python of nodes and images (3.8 and newer).

`fetch` uses the identity of the node. `check` runs on a head node, where a person has none: file descriptor 3 has presigned addresses, JSON,
by the objects' names. Without them, or where they are refused, it ends with code 3, and a node with an identity fetches.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

READ = 1 << 20
ADDRESSES = 3
LATER = 3
SECONDS = 60.0
Get = Callable[[str, Path], Path]


def digest_of(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as content:
        for piece in iter(lambda: content.read(READ), b""):
            found.update(piece)
    return found.hexdigest()


def by_node(address: str, name: str, file: Path) -> Path:
    command = ["aws", "s3", "cp", "--only-show-errors", f"{address}/{name}", str(file)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return file


def by_address(addresses: dict[str, str], name: str, file: Path) -> Path:
    with urllib.request.urlopen(addresses[name], timeout=SECONDS) as found, file.open("wb") as target:  # noqa: S310  signed by our client
        shutil.copyfileobj(found, target, READ)
    return file


def unpack(get: Get, packs: list[str], folder: Path) -> None:
    """The contents of the packs, as files named after their digests."""
    for pack in packs:
        file = get(f"packs/{pack}.tar.gz", folder / "pack")
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


def main(address: str, digest: str, target: str, mode: str) -> None:
    get: Get = partial(by_node, address)
    if mode == "check":
        with os.fdopen(ADDRESSES) as given:
            get = partial(by_address, json.loads(given.read() or "{}"))
    part = Path(f"{target}.part")
    shutil.rmtree(part, ignore_errors=True)
    (part / "contents").mkdir(parents=True)
    try:
        fetch(get, digest, target, part)
    except (KeyError, urllib.error.URLError) as e:
        if mode != "check":
            raise
        shutil.rmtree(part, ignore_errors=True)
        why = "no addresses" if isinstance(e, KeyError) else e  # an error of urllib does not have the address
        print(f"trn: the workdir is fetched on another node: {why}")
        sys.exit(LATER)


def fetch(get: Get, digest: str, target: str, part: Path) -> None:
    tree: Any = json.loads(get(f"trees/{digest}.json", part / "list").read_text("utf-8"))
    if hashlib.sha256(json.dumps(tree["entries"]).encode()).hexdigest() != digest:
        raise ValueError("the list of its files is not the one that was sent")
    unpack(get, sorted(tree["packs"]), part / "contents")
    make(tree["entries"], part / "contents", part / "code")
    (part / "code").rename(target)
    shutil.rmtree(part)
    print(f"trn: {len(tree['entries'])} files of the workdir are in {target}")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, ValueError, KeyError, TypeError, subprocess.CalledProcessError, tarfile.TarError) as e:
        sys.exit(f"trn: the workdir cannot be fetched: {e}")
