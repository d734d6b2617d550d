#!/bin/bash
# JupyterLab as a job: trn submit notebook.sh --queue cpu, then trn forward latest --wait. docs/guides/notebooks.md
# Its folder is the argument, else the one in which the job runs: with --workdir, the job's copy of yours. It ends when nothing has been
# used for IDLE_MINUTES (60).
set -euo pipefail
umask 077 # the token and the keys of the kernels are for this user only
own=$(dirname "$PWD")/notebook
folder=$(realpath "${1:-$PWD}")
idle=$((${IDLE_MINUTES:-60} * 60))

if [ "${NODE_RANK:-0}" -gt 0 ]; then # the job's other nodes are there for what the notebook starts
  until [ -e "$own/ended" ]; do sleep 5; done
  exit
fi
mkdir -p "$own"
trap 'rm -f "$own/../forward"; touch "$own/ended"' EXIT
if ! command -v jupyter-lab > /dev/null; then
  echo "JupyterLab is installed into the job's directory"
  python3 -m pip freeze | grep '==' > "$own/installed" || true # what is there already keeps its version
  python3 -m pip install --quiet --target "$own/packages" --constraint "$own/installed" jupyterlab==4.6.6
  export PATH="$own/packages/bin:$PATH" PYTHONPATH="$own/packages${PYTHONPATH:+:$PYTHONPATH}"
fi
python3 -c 'import secrets; print(secrets.token_urlsafe(32), end="")' > "$own/token"
export JUPYTER_TOKEN_FILE="$own/token" JUPYTER_RUNTIME_DIR="$own/runtime"
command=(
  jupyter-lab --no-browser --ServerApp.ip=127.0.0.1 --ServerApp.root_dir="$folder"
  --ServerApp.shutdown_no_activity_timeout="$idle" --TerminalManager.cull_inactive_timeout="$idle"
  --MappingKernelManager.cull_idle_timeout="$idle" --MappingKernelManager.cull_interval=60
  --MappingKernelManager.cull_connected=True # a forgotten tab keeps no node
)
if [ "$(id -u)" -eq 0 ]; then command+=(--allow-root); fi
"${command[@]}" &
server=$!
trap 'kill "$server"' TERM INT
# Jupyter chooses the port: 8888, or another one if that is taken
until port=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["port"])' "$own/runtime/jpserver-$server.json" 2> /dev/null); do
  if ! kill -0 "$server" 2> /dev/null; then wait "$server"; exit; fi
  sleep 0.5
done
printf '%s /lab?token=%s\n' "$port" "$(cat "$own/token")" > "$own/forward"
mv "$own/forward" "$own/../forward"
echo "JupyterLab runs: trn forward latest shows it in your browser, trn cancel ends it"
while :; do # a signal interrupts `wait`
  code=0
  wait "$server" || code=$?
  kill -0 "$server" 2> /dev/null || exit "$code"
done
