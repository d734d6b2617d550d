"""Configurations that the public repositories of this field use, as environment files: valid, and accepted by the vendor's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox import LocalAws
from sandbox.pcluster_validator import PclusterValidator
from tests.cdk import findings
from tests.pcluster.examples import stringified
from tests.pcluster.seeding import configuration
from tests.pcluster.test_validators import ACCEPTED
from tests.stacks.synthesis import EKS, PCS, SLURM, Stacks
from trainium_cdk import settings
from trainium_cdk.description import checks

HERE = Path(__file__).parent
OF_SLURM = sorted(HERE.glob("*.yaml"))
OTHERS = sorted(HERE.glob("*/*.yaml"))
STACKS = {HERE.name: SLURM, "pcs": PCS, "eks": EKS}


def stacks(file: Path) -> Stacks:
    return STACKS[file.parent.name]


@pytest.mark.parametrize("file", [*OF_SLURM, *OTHERS], ids=lambda f: f.stem)
def test_its_template_passes(file: Path) -> None:
    """Our own checks find no error, cfn-lint and CloudFormation's validator nothing."""
    env = settings.load(file)
    engine = stacks(file).engine
    assert [p for p in checks.check(env, engine) if p.level == "error"] == []
    assert findings(stacks(file).template_of(env)) == []


@pytest.mark.parametrize("file", OF_SLURM, ids=lambda f: f.stem)
def test_parallelcluster_accepts_it(file: Path, validator: PclusterValidator, local_aws: LocalAws) -> None:
    env = settings.load(file)
    found = validator.validate(stringified(configuration(local_aws, env)), env.cluster_name)
    assert [f for f in found if f.level != "INFO" and f.type not in ACCEPTED] == []
