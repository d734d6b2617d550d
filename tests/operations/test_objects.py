"""What `trn diff` says of Kubernetes objects that leave a stack, or get another name."""

from __future__ import annotations

from typing import Any

import pytest

from trainium_cdk.client.operations.updates import Spec, compare

FSX = {"Type": "AWS::FSx::FileSystem", "Properties": {"LustreConfiguration": {"DeploymentType": "SCRATCH_2"}}}
PERSISTENT = {"Type": "AWS::FSx::FileSystem", "Properties": {"LustreConfiguration": {"DeploymentType": "PERSISTENT_2"}}}


def of_fsx(namespace: str) -> dict[str, Any]:
    return {"Fn::Join": ["", [f"{namespace}fsx-", {"Ref": "Fsx"}, "-", {"Fn::GetAtt": ["Fsx", "LustreMountName"]}]]}


TEAMS: dict[str, list[Any]] = {
    "*": ["training", "vision"],
    "ClusterQueue": ["trn.training", "trn.vision"],
    "LocalQueue": ["training/trn", "vision/trn"],
    "Namespace": ["training", "vision"],
    "PersistentVolume": [of_fsx("training-")],
    "PersistentVolumeClaim": [of_fsx("training/")],
    "RoleBinding": ["*/trn-edit"],
}
ONE: dict[str, list[Any]] = {
    **TEAMS,
    "*": ["training"],
    "ClusterQueue": ["trn.training"],
    "LocalQueue": ["training/trn"],
    "Namespace": ["training"],
    "RoleBinding": ["*/trn-edit"],
}


def changes(old: Any, new: Any, before: Any = FSX, after: Any = FSX) -> list[tuple[str, str, str, str]]:
    templates = [
        {"Resources": {"Fsx": fsx, "Objects": {"Type": "Custom::TrnOwnedObjects", "Properties": {"Objects": objects}}}}
        for fsx, objects in ((before, old), (after, new))
    ]
    found = compare(templates[0], templates[1], Spec.load())
    return [(c.level, c.property, c.old, c.new) for c in found if c.resource == "Objects"]


OLD, NEW = "fsx-(Fsx)-(Fsx.LustreMountName)", "fsx-(new Fsx)-(new Fsx.LustreMountName)"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (changes(TEAMS, TEAMS), []),
        (changes(TEAMS, ONE), [
            ("interrupts", "ClusterQueue", "trn.vision", ""),
            ("interrupts", "Namespace", "vision", ""),
            ("safe", "RoleBinding", "vision/trn-edit", ""),
        ]),
        (changes(ONE, TEAMS), [
            ("safe", "ClusterQueue", "", "trn.vision"), ("safe", "LocalQueue", "", "vision/trn"), ("safe", "Namespace", "", "vision"),
            ("safe", "RoleBinding", "", "vision/trn-edit"),
        ]),
        (changes(TEAMS, TEAMS, FSX, PERSISTENT), [
            ("interrupts", "PersistentVolume", f"training-{OLD}", f"training-{NEW}"),
            ("interrupts", "PersistentVolumeClaim", f"training/{OLD}", f"training/{NEW}"),
        ]),
        (changes(ONE, {k: v for k, v in ONE.items() if "Volume" not in k}), [
            ("interrupts", "PersistentVolume", f"training-{OLD}", ""),
            ("interrupts", "PersistentVolumeClaim", f"training/{OLD}", ""),
        ]),
    ],
)  # fmt: skip
def test_what_leaves_is_named(found: list[Any], expected: list[Any]) -> None:
    assert found == expected


def test_files_that_a_folder_of_its_own_hides_are_told() -> None:
    """The volume of a namespace that had the whole file system, and that of a team, which had a folder before."""

    def of(*claims: str) -> Any:
        volumes = [{"Fn::Join": ["", [f"{one}-", {"Ref": "Fsx"}]]} for one in claims]
        return {
            "Fsx": FSX,
            "Objects": {"Type": "Custom::TrnOwnedObjects", "Properties": {"Objects": {"PersistentVolume": volumes}}},
        }

    before, after = of("training-efs", "vision-efs-team"), of("training-efs-team", "vision-efs-team")
    [one] = compare({"Resources": before}, {"Resources": after}, Spec.load())
    assert (one.level, one.old, one.new) == ("interrupts", "training-efs-(Fsx)", "training-efs-team-(Fsx)")
    assert "do not see the files" in one.meaning
    assert "own-folder.yaml" in one.advice
    [gone] = compare({"Resources": after}, {"Resources": of("training-efs-team")}, Spec.load())
    assert "do not see" not in gone.meaning
