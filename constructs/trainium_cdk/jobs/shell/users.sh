# shellcheck shell=bash
# Part of a script that has set: trn (the directory of jobs and data). Jobs belong to one user of the cluster's machines.
: "${trn:?}"
if [[ -d $trn/jobs && ! -w $trn/jobs ]]; then
  owner=$(stat -c %U "$trn/jobs")
  printf '%s\n' "the jobs in $trn/jobs belong to $owner, and you are $(id -un). Run this as $owner (sudo -Hu $owner trn ...), or give --ssm" >&2
  exit 77
fi
