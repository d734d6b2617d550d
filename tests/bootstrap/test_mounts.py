"""A file system that is mounted and does not respond, as NFS whose server is gone: a FUSE file system without a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.bootstrap.conftest import NewNode
from tests.bootstrap.test_users import BARE
from tests.support import need

HUNG = """
import ctypes, os, sys
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
failed = ctypes.CDLL(None).mount(b"hung", sys.argv[1].encode(), b"fuse", 0, options)
print("failed" if failed else "mounted", flush=True)
sys.stdin.read()
"""


def test_a_file_system_that_does_not_respond_is_reported(new_node: NewNode) -> None:
    need(Path("/dev/fuse").exists(), "this machine has no /dev/fuse")
    node = new_node(**BARE, TRN_MOUNTS="/fsx")
    node.become("ComputeFleet")
    node.path("/fsx").mkdir()
    node.write("/usr/local/bin/timeout", '#!/bin/sh\nshift\nexec /usr/bin/timeout 1 "$@"\n', 0o755)
    enter = ["nsenter", "--target", str(node.pid), "--mount", sys.executable, "-c", HUNG, f"{node.inner}/fsx"]
    with subprocess.Popen(enter, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "mounted\n"
        done = node.run("/opt/trn/configure-node.sh", timeout=120)
        program.kill()  # which ends the file system
    assert done.code != 0
    assert "/fsx is mounted but does not respond within 30 s" in done.err
