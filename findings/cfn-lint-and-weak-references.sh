#!/usr/bin/env bash
# Tools: aws-cdk-lib 2.275.0 (npm), cfn-lint 1.58.0 (PyPI).
# Expected: cfn-lint accepts what the CDK writes for a weak reference between stacks, a flag that the CDK recommends for new apps.
# Seen: it does for a single value. For a list it reports E1022, as it does not take the split output of a stack for a list.
# Output: "a value: no error"; "a list: E1022".
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit aws-cdk-lib@2.275.0 constructs@10.8.1
python3 -m venv venv
venv/bin/pip install --quiet cfn-lint==1.58.0
cat >app.js <<'APP'
const cdk = require("aws-cdk-lib");
const ec2 = require("aws-cdk-lib/aws-ec2");
const ssm = require("aws-cdk-lib/aws-ssm");
const app = new cdk.App({ context: { "@aws-cdk/core:defaultCrossStackReferences": "weak" } });
const producer = new cdk.Stack(app, "Producer");
const endpoint = new ec2.CfnVPCEndpoint(producer, "Endpoint", { vpcId: "vpc-0123456789abcdef0", serviceName: "com.amazonaws.us-east-1.s3", vpcEndpointType: "Interface" });
new ssm.CfnParameter(new cdk.Stack(app, "Value"), "Kept", { type: "String", value: endpoint.ref });
new ssm.CfnParameter(new cdk.Stack(app, "List"), "Kept", { type: "StringList", value: cdk.Fn.join(",", endpoint.attrDnsEntries) });
app.synth();
APP
CDK_OUTDIR=$folder/out node app.js
errors() {
    venv/bin/cfn-lint --format parseable --regions us-east-1 -- "out/$1.template.json" | cut -d: -f6 | grep '^E' | sort -u | paste -sd ' ' || true
}
value=$(errors Value)
list=$(errors List)
echo "cfn-lint $(venv/bin/pip show cfn-lint | sed -n 's/^Version: //p'), aws-cdk-lib 2.275.0"
echo "a value: ${value:-no error}"
echo "a list: ${list:-no error}"
[ -z "$value" ] && [ "$list" = E1022 ]
