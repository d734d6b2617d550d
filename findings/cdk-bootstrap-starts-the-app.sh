#!/usr/bin/env bash
# Tool: aws-cdk 2.1148.1, its command line (npm).
# Expected: `cdk bootstrap aws://ACCOUNT/REGION` has all it needs in its address, and leaves the app alone.
# Seen: it starts the app of the folder first, as any other command does. `--app ""` prevents that.
# Output: "with an address: the app was started 1 time"; "with --app '': 0 times".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit aws-cdk@2.1148.1
export AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none AWS_ENDPOINT_URL=http://127.0.0.1:9 AWS_MAX_ATTEMPTS=1 CDK_DISABLE_CLI_TELEMETRY=true

cat >app.sh <<'APP'
echo started >>started
mkdir -p "$CDK_OUTDIR"
echo '{"version": "48.0.0", "artifacts": {}}' >"$CDK_OUTDIR/manifest.json"
APP
echo '{"app": "bash app.sh"}' >cdk.json

starts() { # the address has no AWS behind it: both end with an error there
    : >started
    timeout 120 node_modules/.bin/cdk bootstrap aws://111122223333/us-east-1 --no-notices "$@" >log 2>&1 || true
    wc -l <started
}

plain=$(starts)
without=$(starts --app "")
echo "aws-cdk $(node_modules/.bin/cdk --version)"
echo "with an address: the app was started $plain time"
echo "with --app '': $without times"
[ "$plain" -eq 1 ] && [ "$without" -eq 0 ]
