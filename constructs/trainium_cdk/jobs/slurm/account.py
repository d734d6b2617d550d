"""Commands as a user of a node. A job can write that user's own files, so a command that is started for another purpose reads none of them: no
login shell, no profile, no start-up file, and no variable of the caller. Pure."""

from __future__ import annotations

from typing import Literal

from trainium_cdk.jobs import quote

ENVIRONMENT = "/etc/trn-environment"
"""What a login shell has on that node without a user's own files: NAME=VALUE, each with a NUL byte at its end. Written by root (the step
`environment` of the node's bootstrap)."""
PATH = "/opt/slurm/bin:/opt/aws/neuron/bin:/opt/amazon/efa/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""On a node without that file: Slurm's commands as ParallelCluster has them, Neuron's and EFA's."""

_START = r"""given=(PATH={path}) file=${{TRN_NODE_ENVIRONMENT:-{environment}}}
if [ -r "$file" ]; then mapfile -d "" -t given < "$file"; fi
home=$(getent passwd "$1" | cut -d: -f6)
exec {become} -u "$1" -- env -i "${{given[@]}}" ${{TERM:+TERM="$TERM"}} ${{home:+HOME="$home"}} USER="$1" LOGNAME="$1" \
  SHELL=/bin/bash /bin/bash --noprofile --norc -c "cd 2> /dev/null || cd /; $2"
"""


def run(user: str, command: str, become: Literal["runuser", "sudo"]) -> str:
    """A line of sh that runs a command as a user, in its home.

    Args:
        command: for bash.
        become: the program by which the caller becomes that user: root's, or that of an account that may use sudo.
    """
    start = _START.format(path=PATH, environment=ENVIRONMENT, become=become)
    return f"bash --noprofile --norc -c {quote.word(start)} trn {quote.words((user, command))}"


def shell(user: str) -> str:
    """A line of sh that opens a shell for a person at a terminal."""
    return run(user, "exec bash --noprofile --norc -i", "sudo")
