"""Several jobs in one request: one script that takes the lock and makes the folders once, and otherwise runs what each job's own
script would run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from trainium_cdk.jobs import quote
from trainium_cdk.jobs.slurm.submit_script import FOLDERS, LEFT, digest_of
from trainium_cdk.jobs.slurm.transport import Result

if TYPE_CHECKING:
    from trainium_cdk.jobs.slurm.render import SlurmSubmission

MOST = 100
"""Jobs in one request: it takes some seconds, for which it holds a lock."""
_ENDED = "trn-ended: "

_FOLDERS = r"""
# The folders of all new jobs of a lock are made at once. One without stages at its end is of a job that was refused, or not reached.
declare -A new=()
clear_folders() {
  local one
  for one in "${!new[@]}"; do
    if [ -d "$one" ] && [ ! -e "$one/stages" ]; then rmdir "$one"/{logs,state,script,work} "$one" 2> /dev/null || true; fi
  done
  new=()
}
trap clear_folders EXIT
make_folders() { # ids
  local one made=()
  for one; do
    one=$trn/jobs/$one
    if [ ! -e "$one" ]; then made+=("$one") new[$one]=yes; fi
  done
  if [ "${#made[@]}" -eq 0 ]; then return 0; fi
  umask 077
  mkdir -p "${made[@]/%//logs}" "${made[@]/%//state}" "${made[@]/%//script}" "${made[@]/%//work}"
  umask 022
}
"""
_JOB = """
set +e
(
set -e
id={id}
job=$trn/jobs/$id
digest={digest}
{commands}) 2>&1
printf '{ended}%s %s\\n' {id} $?
set -e
"""
_IF_OLD = 'if [ -z "${{new[$job]:-}}" ]; then {}; fi\n'


def script(submissions: Sequence[SlurmSubmission]) -> str:
    """The script for jobs of one cluster and user, of different ids."""
    text = [submissions[0].pieces.before, _FOLDERS]
    for lock, group in groupby(submissions, lambda one: one.pieces.lock):
        jobs = list(group)
        text += [f"id={quote.word(jobs[0].id)}\n", lock]
        text.append(f"make_folders {quote.words(one.id for one in jobs)}\n")
        text += [*map(_job, jobs), "clear_folders\n"]
    return "".join(text)


def _job(one: SlurmSubmission) -> str:
    pieces = one.pieces
    old, folders = _IF_OLD.format(LEFT), pieces.folders + "\n"
    if folders.strip() == FOLDERS:  # an array has more
        folders = _IF_OLD.format(FOLDERS)
    commands = f"{pieces.locked}{old}{pieces.cleared}{folders}{pieces.made}"
    return _JOB.format(id=quote.word(one.id), digest=digest_of(one.files), commands=commands, ended=_ENDED)


def results(output: str) -> Iterator[tuple[str, Result]]:
    """Of each job that the script has reached, the id and the result, in which both outputs are the same."""
    said: list[str] = []
    for line in output.splitlines():
        if line.startswith(_ENDED):
            id, _, code = line.removeprefix(_ENDED).partition(" ")
            text = "\n".join(said)
            yield id, Result(text, text, int(code))
            said = []
        else:
            said.append(line)
