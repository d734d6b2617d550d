"""A CDK app that includes existing templates, with cdk-nag. Runs in the scanners' environment: `nag_app.py <output> <template>...`"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import cdk_nag
from aws_cdk import App, CfnResource, DefaultStackSynthesizer, Stack, Validations
from aws_cdk import cloudformation_include as include
from constructs import Construct


def show_clusters(stack: Stack, resources: dict[str, Any]) -> None:
    """Repeat EKS clusters in the shape of the CDK's older construct, the only one that cdk-nag's rules know."""
    clusters = Construct(stack, "Clusters")
    for name, resource in resources.items():
        if resource["Type"] != "AWS::EKS::Cluster":
            continue
        given = resource.get("Properties", {})
        network = given.get("ResourcesVpcConfig", {})
        logged = given.get("Logging", {}).get("ClusterLogging", {}).get("EnabledTypes", [])
        config = {
            "resourcesVpcConfig": {"endpointPublicAccess": network.get("EndpointPublicAccess", True)},
            "logging": {"clusterLogging": [{"enabled": True, "types": [kind["Type"] for kind in logged]}]},
        }
        CfnResource(clusters, name, type="Custom::AWSCDK-EKS-Cluster", properties={"Config": config})


outdir, *templates = sys.argv[1:]
app = App(outdir=outdir, builtin_cloud_formation_validation=False)
for i, template in enumerate(templates):
    stack = Stack(app, f"T{i}", synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
    include.CfnInclude(stack, "T", template_file=template, allow_cyclical_references=True)
    show_clusters(stack, json.loads(Path(template).read_text("utf-8"))["Resources"])
Validations.of(app).add_plugins(cdk_nag.AwsSolutionsChecks(app), cdk_nag.NIST80053R5Checks(app))
try:
    app.synth()
except RuntimeError:  # raised for findings, and for other failures
    if not (Path(outdir) / "validation-report.json").exists():
        raise
