"""What is given to the vendor's node images, against its recorded schema (`conformance/surfaces.yaml`)."""

from __future__ import annotations

import email
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from conformance import surfaces
from trainium_cdk.cdk.eks.user_data import ApiServer, user_data

RECORDED = surfaces.load()


@pytest.mark.parametrize(
    "given",
    [
        {"huge_pages": "5Gi", "locked_memory": True, "local_storage": True, "lustre": True},
        {"locked_memory": True, "cluster": ApiServer("trn-eks", "https://x", "QUJD", "172.20.0.0/16")},
        {"local_storage": True},
    ],
    ids=lambda given: "-".join(given),
)
def test_user_data_is_a_node_config(given: dict[str, Any]) -> None:
    message = email.message_from_string(user_data(**given))
    [config] = [str(p.get_payload()) for p in message.walk() if p.get_content_type() == "application/node.eks.aws"]
    validate(YAML(typ="safe").load(config))


def test_the_schema_refuses_what_nodeadm_does_not_know() -> None:
    with pytest.raises(jsonschema.ValidationError, match="localStrage"):
        validate({"apiVersion": "x", "kind": "NodeConfig", "spec": {"instance": {"localStrage": {}}}})
    with pytest.raises(jsonschema.ValidationError, match="RAID5"):
        validate(
            {"apiVersion": "x", "kind": "NodeConfig", "spec": {"instance": {"localStorage": {"strategy": "RAID5"}}}}
        )


def validate(config: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator(RECORDED["node-config"].recorded["schema"]).validate(config)
