"""cdk-nag (AWS Solutions, NIST 800-53 R5) and cfn-guard with Control Tower's controls over finished templates: `packs.py OUTDIR TEMPLATE...`.

It runs in the scanners' environment. What acknowledged.yaml does not name is printed, and the exit code is 3.
"""

from __future__ import annotations

import json
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import cdk_nag
import yaml
from aws_cdk import App, CfnResource, DefaultStackSynthesizer, Stack, Validations
from aws_cdk import cloudformation_include as include
from cdklabs.cdk_validator_cfnguard import CfnGuardValidator
from constructs import Construct

ACKNOWLEDGED = Path(__file__).with_name("acknowledged.yaml")


def show_clusters(stack: Stack, resources: dict[str, Any]) -> None:
    """Repeat EKS clusters in the shape of the CDK's older construct, the only one that cdk-nag's rules know."""
    clusters = Construct(stack, "Clusters")
    for name, resource in resources.items():
        if resource["Type"] == "AWS::EKS::Cluster":
            given = resource.get("Properties", {})
            logged = given.get("Logging", {}).get("ClusterLogging", {}).get("EnabledTypes", [])
            config = {
                "resourcesVpcConfig": {
                    "endpointPublicAccess": given.get("ResourcesVpcConfig", {}).get("EndpointPublicAccess", True)
                },
                "logging": {"clusterLogging": [{"enabled": True, "types": [kind["Type"] for kind in logged]}]},
            }
            CfnResource(clusters, name, type="Custom::AWSCDK-EKS-Cluster", properties={"Config": config})


def findings(outdir: str, templates: list[str]) -> list[tuple[str, str, str, str]]:
    """Rule, template, logical id without the CDK's hash, and text of each finding."""
    app = App(outdir=outdir, builtin_cloud_formation_validation=False)
    stacks = {}
    for i, file in enumerate(templates):
        stack = Stack(app, f"T{i}", synthesizer=DefaultStackSynthesizer(generate_bootstrap_version_rule=False))
        include.CfnInclude(stack, "T", template_file=file, allow_cyclical_references=True)
        show_clusters(
            stack,
            (yaml.safe_load if file.endswith(".yaml") else json.loads)(Path(file).read_text("utf-8"))["Resources"],
        )
        stacks[f"T{i}"] = Path(file).stem
    packs = (cdk_nag.AwsSolutionsChecks(app), cdk_nag.NIST80053R5Checks(app), CfnGuardValidator(max_buffer=2**28))
    Validations.of(app).add_plugins(*packs)
    report = Path(outdir) / "validation-report.json"
    try:
        app.synth()
    except RuntimeError:  # raised for findings, and for other failures
        if not report.exists():
            raise
    found = []
    for pack in json.loads(report.read_text("utf-8"))["pluginReports"]:
        for violation in pack["violations"]:
            # cfn-guard also names a place within a policy, which is no construct
            paths = [place["constructPath"] for place in violation["violatingConstructs"]]
            for path in filter(None, paths) if any(paths) else [""]:
                stack, _, name = [*path.split("/", 2), "", ""][:3]
                text = violation["description"].partition(" - (Control IDs")[0]
                control = re.match(r"\[(CT\.[A-Z0-9.]+)\]", text)  # two of Control Tower may have rules of one name
                found.append(
                    (
                        control[1] if control else violation["ruleName"],
                        stacks.get(stack, stack),
                        re.sub(r"[0-9A-F]{8}$", "", name),
                        text,
                    )
                )
    return sorted(set(found))


def main(outdir: str, templates: list[str]) -> int:
    known = yaml.safe_load(ACKNOWLEDGED.read_text("utf-8"))
    if not all(entry.get("reason") for entry in known):
        raise ValueError(f"{ACKNOWLEDGED.name}: an entry has no reason")

    def acknowledged(rule: str, template: str, name: str) -> bool:
        return any(
            any(fnmatchcase(rule.replace("[", "("), pattern.replace("[", "(")) for pattern in entry["rules"])
            and any(fnmatchcase(name, pattern) for pattern in entry["resources"])
            and any(fnmatchcase(template, pattern) for pattern in entry.get("templates", ["*"]))
            for entry in known
        )

    left = [one for one in findings(outdir, templates) if not acknowledged(*one[:3])]
    for rule, template, name, text in left:
        print(f"{template}: {name}: {rule}: {text}")
    return 3 if left else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
