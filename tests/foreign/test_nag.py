"""cdk-nag over an app of a user's own: what of ours it reports is acknowledged by the library, with the reason."""

from __future__ import annotations

import json
import subprocess
import sys

from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3

from sandbox.paths import HOME as ROOT
from tests.cdk import app
from tests.foreign.foreign import cluster, vpc
from tests.support import need
from trainium_cdk import TrnBastionHost, TrnEks, TrnPlugins, TrnStorage
from trainium_cdk.cdk.helpers.acknowledged import wildcards

SCANNERS = ROOT / ".venvs/audit"
OF_ALL = """
import json, sys
sys.path.append(sys.argv[1])
import cdk_nag
from aws_cdk import Stack
from tests.cdk import app
from tests.foreign.test_citizens import ENV, every_construct
found = app()
every_construct(Stack(found, "Data", env=ENV))
found.synth()
report = cdk_nag.AwsSolutionsChecks(found).validate_scope(found)
print(json.dumps([f"{v.rule_name} {r.construct_path}" for v in report.violations for r in v.violating_resources]))
"""


def test_a_stack_with_every_construct_has_findings_of_its_own_alone() -> None:
    [packages] = SCANNERS.glob("lib/python*/site-packages") if SCANNERS.exists() else [None]
    need(packages is not None, f"the scanners are not installed ({SCANNERS}): make {SCANNERS.name}")
    run = subprocess.run(
        [sys.executable, "-c", OF_ALL, str(packages)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found: list[str] = json.loads(run.stdout.splitlines()[-1])
    # a plain bucket of the app
    assert found == ["AwsSolutions-S1 Data/Bucket/Resource", "AwsSolutions-S10 Data/Bucket/Resource"]


def acknowledged(scope: Stack) -> dict[str, set[str]]:
    """The acknowledged findings, by construct."""
    assert isinstance(scope.node.root, App)
    scope.node.root.synth()
    found: dict[str, set[str]] = {}
    for node in scope.node.find_all():
        for entry in node.node.metadata:
            names = {name for name in entry.data if "AwsSolutions-" in name} if isinstance(entry.data, dict) else set()
            if names:
                found.setdefault(node.node.path, set()).update(names)
    return found


def test_permissions_that_others_grant_are_not_acknowledged() -> None:
    scope = Stack(app(), "Mine")
    plugins = TrnPlugins(scope, "Plugins", cluster=cluster(scope, kubectl=True), node_groups=[])
    s3.Bucket(scope, "Corpus").grant_read(plugins)
    assert not [path for path, names in acknowledged(scope).items() if "Corpus" in str(names)]


def test_each_acknowledgement_is_below_a_construct_of_ours() -> None:
    scope = Stack(app(), "Mine")
    within = vpc(scope)
    mine = cluster(scope, within=within, kubectl=True)
    training = TrnEks(scope, "Training", cluster=mine, storage=TrnStorage(scope, "Storage", vpc=within))
    training.grant_submit(iam.Role.from_role_name(scope, "Users", "Users"))
    TrnBastionHost(scope, "Host", vpc=within)
    found = acknowledged(scope)
    ours = ("Mine/Training", "Mine/Host", "Mine/Storage", "Mine/Trn")
    assert [path for path in found if not path.startswith(ours)] == []
    assert found


def test_wildcards_are_named_as_cdk_nag_does() -> None:
    join = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/jobs/*"]]}
    found = wildcards([
        {"Effect": "Allow", "Action": ["s3:PutObject", "s3:GetObject"], "Resource": join},
        {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": [{"Ref": "Bucket"}, "arn:${AWS::Partition}:s3:::b*"]},
        {"Effect": "Deny", "Action": "*", "Resource": "*"},
    ])  # fmt: skip
    assert found == {
        "Resource::<Bucket.Arn>/jobs/*": "the names below this are not known before the deployment: s3:GetObject, s3:PutObject",
        "Resource::arn:<AWS::Partition>:s3:::b*": "the names below this are not known before the deployment: s3:ListBucket",
    }
