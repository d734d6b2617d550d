# shellcheck shell=bash
# The node's own name must lead to an address other nodes can reach: ParallelCluster nodes with several network
# cards put it on the loopback line of /etc/hosts, and collectives then announce 127.0.0.1 to their peers.

step_hosts() {
  local name address mended
  name="$(uname -n)"
  mended="$(awk -v name="${name%%.*}" '
    function own(word) { return word == name || index(word, name ".") == 1 }
    /^[[:space:]]*(127\.|::1)/ {
      comment = ""
      if ((at = index($0, "#")) > 0) { comment = substr($0, at); $0 = substr($0, 1, at - 1) }
      kept = $1; dropped = 0; words = 0
      for (i = 2; i <= NF; i++) if (own($i)) dropped++; else { kept = kept " " $i; words++ }
      if (dropped) { if (words) print kept (comment == "" ? "" : " " comment); next }
      print $0 comment; next
    }
    { print }' /etc/hosts)"
  if ! awk -v name="${name%%.*}" '
      !/^[[:space:]]*(#|127\.|::1|$)/ { for (i = 2; i <= NF; i++) if ($i == name || index($i, name ".") == 1) found = 1 }
      END { exit !found }' <<<"${mended}" && ! hosts_resolves_without_file "${name}"; then
    # Neither another line nor DNS knows the name: give it the primary card's address.
    address="$(ip -o -4 addr show scope global | awk '{ sub("/.*", "", $4); print $4; exit }')"
    [[ -n ${address} ]] ||
      die "the node's name ${name} resolves to the loopback only and no network card has an IPv4 address" \
        "Check the subnet and the security group of the node"
    mended+=$'\n'"${address} ${name} ${name%%.*}"
  fi
  write_file /etc/hosts 0644 <<<"${mended}"
}

hosts_resolves_without_file() { timeout 20 getent -s hosts:dns hosts "$1" >/dev/null; }
