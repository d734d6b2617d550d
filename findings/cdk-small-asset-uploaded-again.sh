#!/usr/bin/env bash
# Tools: cdk-assets 4.7.3 (npm), moto 5.2.5 as S3 (PyPI).
# Expected: a file whose key is in the bucket is not uploaded again.
# Seen: a file of 22 bytes or less is uploaded each time, as an empty zip file has that size. 23 bytes are found and kept.
# Output: "22 bytes: 2 uploads of 2"; "23 bytes: 1 upload of 2".
set -euo pipefail
folder=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-fund --no-audit cdk-assets@4.7.3
python3 -m venv venv
venv/bin/pip install --quiet 'moto[server,s3]==5.2.5'
port=$(venv/bin/python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
venv/bin/moto_server -H 127.0.0.1 -p "$port" >server.log 2>&1 &
server=$!
export AWS_ENDPOINT_URL=http://127.0.0.1:$port AWS_ACCESS_KEY_ID=none AWS_SECRET_ACCESS_KEY=none AWS_REGION=us-east-1
until curl --silent --fail --request PUT "$AWS_ENDPOINT_URL/assets" --header 'Authorization: AWS4-HMAC-SHA256 Credential=none/20260101/us-east-1/s3/aws4_request' >/dev/null; do sleep 0.2; done

uploads() { # of a file of this size, published twice
    head -c "$1" /dev/zero | tr '\0' x >"file-$1"
    cat >assets.json <<MANIFEST
{"version": "48.0.0", "files": {"one": {"source": {"path": "file-$1", "packaging": "file"},
 "destinations": {"here": {"bucketName": "assets", "objectKey": "file-$1", "region": "us-east-1"}}}}}
MANIFEST
    for _ in 1 2; do node_modules/.bin/cdk-assets publish --path assets.json >>log 2>&1; done
    grep -c "PUT /.*file-$1" server.log
}

small=$(uploads 22)
larger=$(uploads 23)
echo "cdk-assets $(node_modules/.bin/cdk-assets --version)"
echo "22 bytes: $small uploads of 2"
echo "23 bytes: $larger upload of 2"
[ "$small" -eq 2 ] && [ "$larger" -eq 1 ]
