# shellcheck shell=bash
# Open files, locked memory, and the port that the Neuron runtime needs.

readonly NOFILE_SOFT=65535
readonly NOFILE_HARD=1048576 # the kernel's default fs.nr_open: a higher value prevents every login

# Many workers with many peers open many sockets ("Failed accept4: Too many open files"). The EFA installer writes 8192 into
# 01_efa.conf, and the last file wins only if nothing reorders them, so the low values are raised too.
step_limits() {
  local file
  write_file /etc/security/limits.d/99-trn.conf 0644 <<LIMITS
# Written by trn-bootstrap: collectives over EFA need many sockets and locked memory.
*    soft nofile  ${NOFILE_SOFT}
*    hard nofile  ${NOFILE_HARD}
root soft nofile  ${NOFILE_SOFT}
root hard nofile  ${NOFILE_HARD}
*    soft memlock unlimited
*    hard memlock unlimited
LIMITS
  for file in /etc/security/limits.conf /etc/security/limits.d/01_efa.conf; do
    [[ ! -f ${file} ]] || limits_raise "${file}"
  done
}

limits_raise() {
  local file="$1" raised
  raised="$(awk -v soft="${NOFILE_SOFT}" -v hard="${NOFILE_HARD}" '
    $1 !~ /^#/ && $3 == "nofile" && $4 ~ /^[0-9]+$/ {
      want = $2 == "soft" ? soft : hard
      if ($4 + 0 < want) $4 = want
    }
    { print }' "${file}")"
  write_file "${file}" 0644 <<<"${raised}"
}

# 48620 is the runtime's bootstrap port; without this, an outgoing connection could use it.
step_sysctl() {
  local port=48620 current
  current="$(</proc/sys/net/ipv4/ip_local_reserved_ports)"
  if [[ ! ${current} =~ (^|,)${port}(,|$) ]]; then
    current="${current:+${current},}${port}"
    echo "${current}" >/proc/sys/net/ipv4/ip_local_reserved_ports
    changed "reserved port ${port}"
  fi
  write_file /etc/sysctl.d/99-trn.conf 0644 <<<"net.ipv4.ip_local_reserved_ports = ${current}"
}
