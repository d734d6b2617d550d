#!/usr/bin/env bash
# Every scanner, each with its own list of what is acknowledged: `tools/audit/run.sh [ENVIRONMENT...]`, default all. It ends with 1 at a new finding.
# shellcheck disable=SC2329  # functions are called by `scan`
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2
there=.venvs/audit/bin
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

scan() {  # name, words of a command: its output only if it fails
  if ! "${@:2}" > "$out/log" 2>&1; then
    failed=1
    printf '== %s\n' "$1"
    cat "$out/log"
  fi
}

listed() {  # the files here, each ended by a null byte, whose names match, but not those that match the second expression
  git ls-files -z --cached --others --exclude-standard | grep -zE "$1" | grep -zvE "$2"
}

# -- Templates, and objects of jobs --
export JSII_NODE=${JSII_NODE:-$(command -v node)} JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION=1
PYTHONPATH=constructs:. python -m tools.audit.render "$out" "$@" > "$out/log" 2>&1 || { cat "$out/log"; exit 2; }
for region in "$out"/templates/*; do
  scan cfn-lint cfn-lint --ignore-checks W I --regions "${region##*/}" -- "$region"/*.json
done
packs() {  # the CDK prints the acknowledged findings too
  "$there/python" tools/audit/packs.py "$out/packs" "$out"/templates/*/*.json 2> "$out/errors"
  local code=$?
  if ((code != 0 && code != 3)); then cat "$out/errors"; fi
  return "$code"
}
scan 'cdk-nag, cfn-guard' packs
scan checkov "$there/checkov" --config-file tools/audit/checkov.yaml --directory "$out/templates" --directory "$out/objects"

# -- Shell --
lint() { xargs -0 shellcheck --norc --external-sources "$@"; }
strict=quote-safe-variables,require-double-brackets,deprecate-which,avoid-nullary-conditions
nodes() { (cd bootstrap && git ls-files -z '*.sh' | lint --enable="$strict"); }  # they source each other by relative paths
ours() { listed '\.sh$' '^bootstrap/|/golden/' | lint; }  # golden files are excerpts
rendered() { find "$out/scripts" -type f -print0 | lint --shell=bash; }
for part in nodes ours rendered; do scan "shellcheck of $part" "$part"; done

# -- Python, and secrets in all files --
scan bandit "$there/bandit" --quiet --configfile tools/audit/bandit.yaml --recursive app.py constructs sandbox stacks tools/audit tools/benchmarks
hashes='(^|/)(package-lock\.json|requirements[a-z-]*\.txt)$|^requirements/'  # of packages, by npm and uv
# Words such as `password`, and long hexadecimal numbers: tests have examples of both; the rest are checksums and commits of public files,
# names of parameters, and `test`, which a local AWS accepts as a key.
examples='^(tests|sandbox|conformance|tools/benchmarks)/|/catalog/|cli/show\.py|eks/user_data\.py|kinds/torchtitan\.py'
vague=(--disable-plugin HexHighEntropyString --disable-plugin Base64HighEntropyString --disable-plugin KeywordDetector)
certain() { listed "$examples" "$hashes" | xargs -0 detect-secrets-hook --no-verify "${vague[@]}"; }
likely() { listed . "$hashes|$examples" | xargs -0 detect-secrets-hook --no-verify; }
scan detect-secrets certain
scan detect-secrets likely
exit $failed
