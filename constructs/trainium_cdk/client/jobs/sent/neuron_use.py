"""One report of neuron-monitor, of a second: `neuron_use.py CONFIGURATION`, which is JSON."""

import os
import shutil
import subprocess
import sys
import tempfile


def main(configuration: str) -> None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/opt/aws/neuron/bin"))
    program = shutil.which("neuron-monitor", path=path)
    if not program:
        print("there is no neuron-monitor", file=sys.stderr)
        sys.exit(4)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(configuration)
        file.flush()
        with subprocess.Popen(
            ["timeout", "20", program, "-c", file.name], stdout=subprocess.PIPE, text=True
        ) as monitor:
            assert monitor.stdout  # noqa: S101
            sys.stdout.write(monitor.stdout.readline())
            monitor.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
