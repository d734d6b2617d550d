# shellcheck shell=bash
# The node's name must resolve to an address that other nodes can reach: ParallelCluster puts the name of nodes with several
# network cards on the loopback line of /etc/hosts, and collectives then announce 127.0.0.1 to their peers.

step_hosts() {
  local name address fixed
  name="$(uname -n)"
  fixed="$(awk -v name="${name%%.*}" '
    function own(host) { return host == name || index(host, name ".") == 1 }
    /^[[:space:]]*(127\.|::1)/ {
      comment = ""
      if ((at = index($0, "#")) > 0) { comment = substr($0, at); $0 = substr($0, 1, at - 1) }
      kept = $1; dropped = 0; others = 0
      for (i = 2; i <= NF; i++) if (own($i)) dropped++; else { kept = kept " " $i; others++ }
      if (dropped) { if (others) print kept (comment == "" ? "" : " " comment); next }
      print $0 comment; next
    }
    { print }' /etc/hosts)"
  if ! awk -v name="${name%%.*}" '
      !/^[[:space:]]*(#|127\.|::1|$)/ { for (i = 2; i <= NF; i++) if ($i == name || index($i, name ".") == 1) found = 1 }
      END { exit !found }' <<<"${fixed}" && ! hosts_resolves_without_file "${name}"; then
    # Neither another line nor DNS has the name: use the primary card's address.
    address="$(ip -o -4 addr show scope global | awk '{ sub("/.*", "", $4); print $4; exit }')"
    [[ -n ${address} ]] ||
      die "the node's name ${name} resolves to the loopback only and no network card has an IPv4 address" \
        "Check the subnet and the security group of the node"
    fixed+=$'\n'"${address} ${name} ${name%%.*}"
  fi
  write_file /etc/hosts 0644 <<<"${fixed}"
}

hosts_resolves_without_file() { timeout 20 getent -s hosts:dns hosts "$1" >/dev/null; }
