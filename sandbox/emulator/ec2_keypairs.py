"""Key pairs with real key material and a key type: pcluster rejects RSA for newer systems."""

from __future__ import annotations

import base64
import hashlib
import uuid
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from ministack.services import ec2

from sandbox.emulator.query import ApiError, Response, ec2_response

_TAG_TYPE = "key-pair"


def _store(params: dict[str, Any], name: str, kind: str, public: bytes) -> dict[str, Any]:
    if name in ec2._key_pairs:
        raise ApiError("InvalidKeyPair.Duplicate", f"The keypair already exists: {name}")
    key_id = "key-0" + uuid.uuid4().hex[:16]
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    ec2._key_pairs[name] = {
        "KeyName": name,
        "KeyPairId": key_id,
        "KeyType": kind,
        "KeyFingerprint": base64.b64encode(digest).decode(),
        "PublicKey": public.decode(),
    }
    ec2._parse_tag_specs(params, _TAG_TYPE, key_id)
    entry: dict[str, Any] = ec2._key_pairs[name]
    return entry


def create_key_pair(params: dict[str, Any]) -> Response:
    """Generate an ed25519 or RSA pair; the private key is only in the response."""
    kind = ec2._p(params, "KeyType") or "rsa"
    if kind not in ("rsa", "ed25519"):
        raise ApiError("InvalidParameterValue", f"Value ({kind}) for parameter KeyType is invalid.")
    private = (
        ed25519.Ed25519PrivateKey.generate()
        if kind == "ed25519"
        else rsa.generate_private_key(public_exponent=65537, key_size=2048)
    )
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    layout = (
        serialization.PrivateFormat.OpenSSH if kind == "ed25519" else serialization.PrivateFormat.TraditionalOpenSSL
    )
    material = private.private_bytes(serialization.Encoding.PEM, layout, serialization.NoEncryption())
    entry = _store(params, _required_name(params), kind, public)
    return ec2_response("CreateKeyPair", {**entry, "KeyMaterial": material.decode()})


def import_key_pair(params: dict[str, Any]) -> Response:
    """Import a public key in OpenSSH format."""
    text = base64.b64decode(ec2._p(params, "PublicKeyMaterial"))
    if not text.startswith(b"ssh-"):  # CloudFormation passes the key, the API its base64 encoding
        text = ec2._p(params, "PublicKeyMaterial").encode()
    kinds = {b"ssh-rsa": "rsa", b"ssh-ed25519": "ed25519"}
    parts = text.split()
    if len(parts) < 2 or parts[0] not in kinds:
        raise ApiError("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
    return ec2_response("ImportKeyPair", _store(params, _required_name(params), kinds[parts[0]], text))


def _required_name(params: dict[str, Any]) -> str:
    name: str = ec2._p(params, "KeyName")
    if not name:
        raise ApiError("MissingParameter", "The request must contain the parameter KeyName")
    return name


def describe_key_pairs(params: dict[str, Any]) -> Response:
    """Key pairs by name, id or filter; unknown ones are an error, as in EC2."""
    names, ids = ec2._parse_member_list(params, "KeyName"), ec2._parse_member_list(params, "KeyPairId")
    for name in names:
        if name not in ec2._key_pairs:
            raise ApiError("InvalidKeyPair.NotFound", f"The key pair '{name}' does not exist")
    filters = ec2._parse_filters(params)
    fields = {"key-name": "KeyName", "key-pair-id": "KeyPairId", "fingerprint": "KeyFingerprint"}
    pairs = [
        {**entry, "Tags": ec2._tags.get(entry["KeyPairId"]) or []}
        for entry in ec2._key_pairs.values()
        if (not names or entry["KeyName"] in names)
        and (not ids or entry["KeyPairId"] in ids)
        and all(entry.get(fields.get(key, "")) in values for key, values in filters.items())
    ]
    return ec2_response("DescribeKeyPairs", {"KeyPairs": pairs})


def delete_key_pair(params: dict[str, Any]) -> Response:
    """Delete by name or id; a missing key pair is not an error."""
    wanted = {ec2._p(params, "KeyName"), ec2._p(params, "KeyPairId")} - {""}
    for name, entry in list(ec2._key_pairs.items()):
        if wanted & {name, entry["KeyPairId"]}:
            del ec2._key_pairs[name]
            ec2._tags.pop(entry["KeyPairId"], None)
    return ec2_response("DeleteKeyPair", {"Return": True})


ACTIONS = {
    "CreateKeyPair": create_key_pair,
    "ImportKeyPair": import_key_pair,
    "DescribeKeyPairs": describe_key_pairs,
    "DeleteKeyPair": delete_key_pair,
}
