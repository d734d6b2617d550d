#!/bin/bash
# The Python of a clean root (CLEAN_ROOT), with the runner and this machine's /tmp in it: the interpreter of TRN_TEST_PYTHON.
set -eu
runner=$(cd "$(dirname "$0")/../../constructs/trainium_cdk" && pwd)
# shellcheck disable=SC2016  # the inner shell expands them
exec unshare --mount --propagation private bash -eu -c '
  root=$1 runner=$2; shift 2
  mount --rbind /proc "$root/proc"; mount --rbind /dev "$root/dev"; mount --rbind /sys "$root/sys"
  mount --bind /tmp "$root/tmp"; mount --bind "$runner" "$root/srv"
  exec chroot "$root" env PYTHONPATH=/srv python3 "$@"
' - "$CLEAN_ROOT" "$runner" "$@"
