"""The longest chain of a template, on small ones; the stacks' own are held in tests/stacks."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from benchmarks.creation import CreationTimes
from benchmarks.critical_path import CircularDependency, longest, main, needs, schedule

TIMES = CreationTimes(source="made up", date=dt.date(2026, 11, 1), default=1, seconds={"Slow": 100, "Slower": 150})


def template(**resources: object) -> dict[str, object]:
    return {"Resources": resources}


DIAMOND = template(
    Base={"Type": "Quick"},
    Left={"Type": "Slow", "DependsOn": "Base"},
    Right={"Type": "Slower", "Properties": {"To": {"Ref": "Base"}}},
    Top={"Type": "Quick", "DependsOn": ["Left"], "Properties": {"Of": [{"Fn::GetAtt": ["Right", "Arn"]}]}},
    Alone={"Type": "Slow"},
)


def test_the_slower_way_counts() -> None:
    chain = longest(DIAMOND, TIMES)
    assert [s.logical_id for s in chain] == ["Base", "Right", "Top"]
    assert [(s.start, s.end) for s in chain] == [(0, 1), (1, 151), (151, 152)]
    assert schedule(DIAMOND, TIMES)["Alone"].start == 0
    assert longest({"Resources": {}}, TIMES) == ()


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({"A": {"Ref": "X"}}, {"X"}),
        ({"A": {"Ref": "AWS::Region"}}, set()),
        ({"A": {"Fn::GetAtt": "X.Arn"}}, {"X"}),
        ({"A": {"Fn::Sub": "${X}-${Y.Arn}-${AWS::Region}-${!X}"}}, {"X", "Y"}),
        ({"A": {"Fn::Sub": ["${X}-${z}", {"z": {"Ref": "Y"}}]}}, {"X", "Y"}),
        ({"A": [{"Fn::Join": ["", ["a", {"Fn::If": ["C", {"Ref": "Y"}, ""]}]]}]}, {"Y"}),
        ({"A": {"Ref": "Own"}}, set()),
    ],
)
def test_every_kind_of_reference_is_detected(properties: dict[str, object], found: set[str]) -> None:
    resources = {"Own": {"Type": "T", "Properties": properties}, "X": {"Type": "T"}, "Y": {"Type": "T"}}
    assert needs(resources, "Own") == found


def test_a_cycle_is_named() -> None:
    circle = template(A={"Type": "T", "DependsOn": "B"}, B={"Type": "T", "Properties": {"X": {"Ref": "A"}}})
    with pytest.raises(CircularDependency, match="A -> B -> A"):
        longest(circle, TIMES)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "t.json"
    file.write_text(
        json.dumps(template(Vpc={"Type": "AWS::EC2::VPC"}, C={"Type": "AWS::EKS::Cluster", "DependsOn": "Vpc"}))
    )
    assert main([str(file)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("545 s at least")
    assert "5 s  +  540 s  AWS::EKS::Cluster  C" in printed
    file.write_text("[]")
    assert main([str(file)]) == 1
    assert main([]) == 2
    errors = capsys.readouterr().err
    assert "not a CloudFormation template in JSON" in errors
    assert "usage:" in errors
