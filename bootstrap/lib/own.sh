# shellcheck shell=bash
# The user's own scripts for this role, beside configure-node.sh in the zip file.

step_own_scripts() {
  local file name status role="${TRN_NODE_ROLE/#cpu/compute}" # nodes of the CPU queue are compute nodes
  for file in "${LIB_DIR%/*}/own/${role}"/*; do
    [[ -f ${file} ]] || continue # no script: the pattern itself
    name="${file##*/}"
    name="${name#*-}"
    log "script ${name}: start"
    chmod 0755 "${file}"
    status=0
    TRN_NODE_ROLE="${TRN_NODE_ROLE}" "${file}" || status=$?
    ((status == 0)) ||
      die "your script ${name} ended with status ${status}; the lines above are its own" "Correct it under bootstrap.scripts, and deploy again."
    changed "ran the script ${name}"
  done
}
