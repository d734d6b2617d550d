#!/usr/bin/env bash
# Tool: parsl 2026.10.26 (PyPI).
# Expected: a script that runs with `venv/bin/python script.py` finds the programs of its own environment, as other libraries do.
# Seen: the executor that parsl recommends starts `interchange.py` by the PATH. Without an activated environment it does not start.
# Output: "without: FileNotFoundError of interchange.py"; "with venv/bin in PATH: 42".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet parsl==2026.10.26
cat >run.py <<'PROGRAM'
import parsl
from parsl.config import Config
from parsl.executors import HighThroughputExecutor
from parsl.providers import LocalProvider


@parsl.python_app
def double(number):
    return 2 * number


executor = HighThroughputExecutor(address="127.0.0.1", max_workers_per_node=1, provider=LocalProvider(init_blocks=1, max_blocks=1))
try:
    with parsl.load(Config(executors=[executor])):
        print(double(21).result(timeout=60))
except FileNotFoundError as e:
    print("FileNotFoundError of", e.filename)
PROGRAM
without=$(PATH=/usr/bin:/bin timeout 120 "$folder/venv/bin/python" run.py 2>/dev/null | tail -1)
with=$(PATH=$folder/venv/bin:/usr/bin:/bin timeout 120 venv/bin/python run.py 2>/dev/null | tail -1)
echo "parsl $(venv/bin/pip show parsl | sed -n 's/^Version: //p')"
echo "without: $without"
echo "with venv/bin in PATH: $with"
[ "$without" = "FileNotFoundError of interchange.py" ] && [ "$with" = 42 ]
