"""The rule of which versions go together: every combination against facts written down here once more, and a table to read."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.support import golden
from trainium_cdk import settings
from trainium_cdk.description import checks
from trainium_cdk.description.catalog import (
    Catalog,
    CatalogOverrides,
    Need,
    Stack,
    best_ami,
    choose,
    driver_fits,
    evaluate,
    nearest,
    python_of,
)
from trainium_cdk.description.catalog.models import numbers
from trainium_cdk.description.catalog.stack import FrameworkChoice, alternatives

CATALOG = Catalog.load()
FAMILIES = ("trn1", "trn1n", "trn2", "trn2u", "trn3")
FRAMEWORKS: tuple[FrameworkChoice, ...] = ("torch-xla", "torch-native", "jax", "none")
MINORS = ("1.33", "1.34", "1.35", "1.36")
GOLDEN = Path(__file__).parent / "golden" / "environments.txt"


def slurm(family: str, release: str, framework: FrameworkChoice, system: str) -> Stack:
    return Stack.slurm(CATALOG, (family,), release=release, framework=framework, system=system)


def eks(family: str, release: str, framework: FrameworkChoice, ami: str | None, version: str = "1.35") -> Stack:
    return Stack.eks(CATALOG, (family,), release=release, framework=framework, version=version, ami=ami)


def trains(family: str, release: str, framework: FrameworkChoice) -> bool:
    """The vendor's release notes on families, transcribed manually."""
    at = numbers(release)
    if framework == "torch-native":
        return at >= (2, 33) and family in ("trn2", "trn2u", "trn3")
    if framework == "jax":  # trn2 and trn3 from Neuron 2.29 on
        return at >= ((2, 28) if family.startswith("trn1") else (2, 29))
    known = family != "trn3" or at >= (2, 29)
    return known and (framework == "none" or at < (2, 32))


SLURM = list(itertools.product(FAMILIES, CATALOG.releases, FRAMEWORKS, CATALOG.parallelcluster.operating_systems))
EKS = [
    (family, release, framework, ami, version)
    for family, release, framework, version in itertools.product(FAMILIES, CATALOG.releases, FRAMEWORKS, MINORS)
    for ami in (*CATALOG.amis(version), None)
]


def test_every_combination_on_slurm() -> None:
    """Ubuntu 22.04 has Python 3.10, which ended with Neuron 2.30, and Ubuntu 24.04 has 3.12, which came with 2.28; the wheels of PyTorch 2.9
    need glibc 2.35, Amazon Linux has 2.34; TorchNeuron is for Ubuntu 24.04. JAX is also for Amazon Linux; AWS ended JAX 0.7 with Neuron 2.30."""
    seen = set()
    for family, release, framework, system in SLURM:
        on_system = (
            framework == "none"
            or (system == "ubuntu2404" and numbers(release) >= (2, 28))
            or (system == "alinux2023" and framework == "torch-xla" and numbers(release) < (2, 28))
            or (system == "alinux2023" and framework == "jax")
            or (system == "ubuntu2204" and framework in ("torch-xla", "jax") and numbers(release) < (2, 30))
        )
        verdict = evaluate(CATALOG, slurm(family, release, framework, system))
        assert bool(verdict) is (trains(family, release, framework) and on_system), (family, release, framework, system)
        ended = framework == "torch-xla" and not (2, 28) <= numbers(release) < (2, 30)
        ended |= framework == "jax" and numbers(release) < (2, 30)
        assert (verdict.level == "unsupported") is (bool(verdict) and ended)
        seen.add(verdict.level)
    assert seen == {"works", "unsupported", "cannot"}


def test_every_combination_on_eks() -> None:
    """Driver 2.29 (node images from 2026-07-14) needs runtime 2.33 (Neuron 2.31); runtime 2.32 (Neuron 2.30) needs driver 2.27 (node images
    from 2026-04-09). Where no image is named, nodes have a driver that fits."""
    for family, release, framework, ami, version in EKS:
        at = numbers(release)
        too_new = ami is not None and ami >= "20260714" and at < (2, 31)
        too_old = ami is not None and ami < "20260409" and at >= (2, 30)
        verdict = evaluate(CATALOG, eks(family, release, framework, ami, version))
        assert bool(verdict) is (trains(family, release, framework) and not too_new and not too_old), (
            family, release, framework, ami, version,
        )  # fmt: skip


def test_verdicts_have_a_reason() -> None:
    stacks = [slurm(*row) for row in SLURM] + [eks(*row) for row in EKS[::7]]
    for stack in stacks:
        verdict = evaluate(CATALOG, stack)
        assert bool(verdict.reason) is (verdict.level == "cannot")
        if verdict.level == "unsupported":
            assert verdict.statement
            assert not verdict.statement.supported
            assert str(verdict.statement.date) in str(verdict.statement)


def test_the_nearest_combination_works_and_a_valid_one_is_unchanged() -> None:
    for row in SLURM:
        stack = slurm(*row)
        found, verdict = nearest(CATALOG, stack), evaluate(CATALOG, stack)
        assert found, f"some release trains on {row[0]}"
        assert evaluate(CATALOG, found)
        assert found.families == stack.families
        assert (found.framework == "jax") is (stack.framework == "jax")
        if verdict.level == "works" and not verdict.statement and stack.framework != "none":
            assert found == stack
    for image in EKS[::11]:
        found = nearest(CATALOG, eks(*image))
        assert found
        assert evaluate(CATALOG, found)
        assert found.version == image[-1]
    assert nearest(CATALOG, slurm("trn9", "2.28.1", "torch-xla", "ubuntu2404")) is None


@pytest.mark.parametrize("own", ["2.26.1", "2.28.1"])
def test_a_release_that_must_be_named_is_proposed_to_nobody_else(own: str) -> None:
    for stack in (slurm("trn1", own, "torch-xla", "ubuntu2404"), eks("trn1", own, "torch-xla", None)):
        proposed = {other.release for other in alternatives(CATALOG, stack)}
        named = {"2.26.1", "2.33.1"} - {own}
        assert proposed == {v for v, r in CATALOG.releases.items() if r.frameworks.keys() - {"jax"} and v not in named}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("engine", ["slurm", "eks"])
def test_defaults_are_supported(engine: str, family: str) -> None:
    """What a new environment of each engine and family gets is supported, and refused by no rule of versions."""
    need = Need("slurm", (family,), "ubuntu2404") if engine == "slurm" else Need("eks", (family,))
    release, framework = choose(CATALOG, (need,))
    stack = (
        slurm(family, release, framework, "ubuntu2404") if engine == "slurm" else eks(family, release, framework, None)
    )
    assert evaluate(CATALOG, stack).level == "works"
    # "stay on Neuron 2.28 and PyTorch 2.9" on trn1, which TorchNeuron does not support; TorchNeuron elsewhere
    assert (release, framework) == (
        ("2.28.1", "torch-xla") if family.startswith("trn1") else ("2.33.0", "torch-native")
    )
    recommended = CATALOG.recommended(family)
    assert recommended
    assert (recommended.release, recommended.framework, recommended.os) == (release, framework, "ubuntu2404")


@pytest.mark.parametrize(("release", "framework", "tag"), [
    ("2.28.1", "torch-xla", "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.28.0"), ("2.28.1", "jax", None),
    ("2.30.0", "torch-xla", "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.30.0"), ("2.30.0", "jax", "jax-training-neuronx:0.9.0-neuronx-py313-sdk2.30.0"),
    ("2.30.0", "none", "pytorch-training-neuronx:2.9.0-neuronx-py312-sdk2.30.0"), ("2.32.0", "none", None),
    ("2.32.0", "jax", "jax-training-neuronx:0.10.0-neuronx-py313-sdk2.32.0"), ("2.33.0", "jax", None),
])  # fmt: skip
def test_the_image_of_a_release_has_the_framework(release: str, framework: str, tag: str | None) -> None:
    found = CATALOG.container(CATALOG.release(release), framework)
    assert found == (f"public.ecr.aws/neuron/{tag}-ubuntu24.04" if tag else None)
    if tag:
        assert CATALOG.runtime_of(found or "") == CATALOG.release(release).runtime


def test_an_image_of_ones_own_is_for_every_framework() -> None:
    known = Catalog.load(CatalogOverrides(releases={"2.32.0": {"container": "mirror/neuron:1"}}))
    assert {known.container(known.release("2.32.0"), name) for name in ("torch-xla", "jax", "none")} == {
        "mirror/neuron:1"
    }


def test_the_default_environment_is_such_a_default() -> None:
    env = settings.load()
    assert (env.pcluster.os, env.release.version, env.framework) == ("ubuntu2404", "2.28.1", "torch-xla")
    assert python_of(CATALOG, env.release.frameworks["torch-xla"], env.pcluster.os) == "3.12"
    assert env.node_image
    assert env.node_image.version == "1.36.2-20260625"
    assert not [p for p in checks.check(env) if p.rule == "incompatible-versions"]


@pytest.mark.parametrize("version", [*MINORS, "1.37"])
@pytest.mark.parametrize("release", CATALOG.releases)
def test_nodes_of_every_release_have_a_driver_that_fits(release: str, version: str) -> None:
    """The newest known image whose driver is compatible; else the release's own driver, on the newest known image; else refused."""
    known, amis = CATALOG.release(release), CATALOG.amis(version)
    best = best_ami(CATALOG, release=release, version=version)
    env = settings.validate(
        {"bootstrap": {"neuron_release": release, "framework": "none"}, "eks": {"version": version}}
    )
    stack = eks("trn1", release, "none", None, version)
    fits = driver_fits(CATALOG, stack.driver or "", release, stack.runtime)
    newer = [ami for date, ami in amis.items() if best is None or date > best]
    assert not any(driver_fits(CATALOG, ami.driver, release, stack.runtime) for ami in newer)
    if best:
        assert (env.node_image, env.node_driver, stack.driver) == (amis[best], None, amis[best].driver)
    elif numbers(known.dkms) >= (2, 29):  # as new as that of the newest image
        assert env.node_image == (amis[max(amis)] if amis else None)
        assert env.node_driver == stack.driver == known.dkms
    else:  # it would be a downgrade, on an unknown image
        assert (version, env.node_image, env.node_driver) == ("1.37", None, None)
        assert "driver 2.29.0.0 or newer (EKS's newest node image)" in evaluate(CATALOG, stack).reason
        return
    assert fits


def test_some_releases_have_an_image_and_some_install_their_driver() -> None:
    chosen = {r: best_ami(CATALOG, release=r, version="1.35") for r in ("2.28.1", "2.30.0", "2.31.0", "2.33.0")}
    assert chosen == {"2.28.1": "20260625", "2.30.0": "20260625", "2.31.0": "20260714", "2.33.0": None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("2.33.0", "torch-native")),
        ({"framework": "torch-xla"}, ("2.28.1", "torch-xla")),
        ({"release": "2.28.1"}, ("2.28.1", "torch-xla")),
        ({"framework": "torch-native"}, ("2.33.0", "torch-native")),
        ({"release": "2.33.0"}, ("2.33.0", "torch-native")),
        ({"release": "2.30.0"}, ("2.30.0", "torch-xla")),
        ({"release": "2.26.1"}, ("2.26.1", "torch-xla")),
        ({"framework": "none"}, ("2.28.1", "none")),
        ({"release": "9.9.9"}, ("9.9.9", "torch-xla")),
        ({"release": "2.32.0", "framework": "torch-xla"}, ("2.32.0", "torch-xla")),
        ({"framework": "jax"}, ("2.32.0", "jax")),  # on EKS, the newest with an image of AWS
        ({"release": "2.33.0", "framework": "jax"}, ("2.33.0", "jax")),
    ],
)
def test_given_versions_are_kept_and_the_others_chosen(given: dict[str, str], expected: tuple[str, str]) -> None:
    assert choose(CATALOG, (Need("slurm", ("trn2",), "ubuntu2404"), Need("eks", ("trn2",))), **given) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("families", "system", "expected"),
    [
        (("trn1", "trn2"), "ubuntu2404", ("2.28.1", "torch-xla")),  # the one that trains on both
        (("trn2", "trn3"), "ubuntu2404", ("2.33.0", "torch-native")),
        (("trn2",), "ubuntu2204", ("2.28.1", "torch-xla")),  # TorchNeuron does not run there
        (("trn2",), "alinux2023", ("2.33.0", "torch-native")),  # nothing runs there: the fix is another system
        (("trn1",), "alinux2023", ("2.28.1", "torch-xla")),
    ],
)
def test_what_is_recommended_gives_way_to_what_works(
    families: tuple[str, ...], system: str, expected: tuple[str, str]
) -> None:
    assert choose(CATALOG, (Need("slurm", families, system),)) == expected


def test_recommended_for_a_type_its_family_or_nothing() -> None:
    small, large = CATALOG.recommended("trn2.3xlarge"), CATALOG.recommended("trn2.48xlarge")
    assert small
    assert large
    assert (small.framework, small.release) == (large.framework, large.release)
    assert "torchtitan" in large.kinds
    assert "torchtitan" not in small.kinds
    assert CATALOG.recommended("trn9.48xlarge") is None
    own = {"trn3.48xlarge": {**CATALOG.instance("trn2.48xlarge").model_dump(exclude={"name"}), "family": "trn3"}}
    assert Catalog.load(CatalogOverrides(instances=own)).recommended("trn3.48xlarge") == CATALOG.recommended("trn3")


def test_the_end_of_a_framework_is_one_sentence() -> None:
    assert CATALOG.ended("torch-xla") == (
        "AWS ended PyTorch/XLA for training with Neuron SDK 2.30.0 (announcement, Neuron 2.30, 2026-05-20): it works up to 2.31.1, and 2.28.1 "
        "is the release to stay on"
    )
    assert CATALOG.ended("torch-native") == ""


def test_every_recommendation_can_be_what_it_says() -> None:
    for one in CATALOG.recommendations:
        assert {"script", "nccom"} <= one.kinds.keys()
        assert one.framework in CATALOG.release(one.release).frameworks
        assert one.os in CATALOG.parallelcluster.operating_systems
    for name in CATALOG.instances:
        assert CATALOG.recommended(name), name


def test_a_release_that_must_be_named_is_not_chosen() -> None:
    known = Catalog.load(CatalogOverrides(releases={"2.28.1": {"only_named": True}}))
    needs = (Need("slurm", ("trn2",), "ubuntu2404"),)
    assert choose(known, needs)[0] != "2.28.1"
    assert choose(known, needs, release="2.28.1") == ("2.28.1", "torch-xla")


@pytest.mark.parametrize(
    ("image", "runtime"),
    [
        (CATALOG.release("2.28.1").container, "2.30.51.0"),
        (CATALOG.release("2.30.0").container, "2.32.31.0"),
        ("public.ecr.aws/neuron/jax-training-neuronx:0.10.0-neuronx-py313-sdk2.32.0-ubuntu24.04", "2.34.10.0"),
        ("111122223333.dkr.ecr.us-east-1.amazonaws.com/trn:src-0123", None),
        ("public.ecr.aws/neuron/pytorch-training-neuronx:2.9.0-neuronx-py312-sdk9.9.9-ubuntu24.04", None),
    ],
)
def test_the_runtime_of_an_image(image: str, runtime: str | None) -> None:
    assert CATALOG.runtime_of(image) == runtime


def rows() -> list[Stack]:
    """About sixty environments that people might write."""
    found = []
    for family, release in itertools.product(("trn1", "trn2", "trn3"), CATALOG.releases):
        framework: FrameworkChoice = "torch-xla" if numbers(release) < (2, 32) and family != "trn2" else "torch-native"
        found.append(slurm(family, release, framework, "ubuntu2404"))
    found += [slurm("trn1", r, "torch-xla", "ubuntu2204") for r in ("2.26.1", "2.28.1", "2.29.1", "2.30.0", "2.31.1")]
    found += [eks("trn1", "2.26.1", "torch-xla", ami) for ami in ("20260625", "20260714")]
    found += [slurm("trn2", "2.28.1", "torch-xla", "ubuntu2404"), slurm("trn2", "2.30.0", "torch-xla", "ubuntu2404")]
    found += [slurm("trn2", "2.33.0", "torch-native", s) for s in ("ubuntu2204", "alinux2023")]
    found += [slurm("trn1", r, "torch-xla", "alinux2023") for r in ("2.28.1", "2.31.1")]
    found += [slurm("trn2", r, "jax", "ubuntu2404") for r in CATALOG.releases]
    found += [slurm("trn1", r, "jax", s) for r in ("2.29.1", "2.33.0") for s in ("ubuntu2204", "alinux2023")]
    found += [eks("trn1", r, "jax", None) for r in ("2.28.1", "2.32.0", "2.33.0")]
    found.append(slurm("trn1", "2.28.1", "torch-xla", "rhel9"))
    found += [slurm("trn1", "2.28.1", "none", "alinux2023"), slurm("trn3", "2.28.1", "none", "ubuntu2404")]
    found += [
        slurm("trn1n", "2.33.0", "torch-native", "ubuntu2404"),
        slurm("trn2u", "2.33.0", "torch-native", "ubuntu2404"),
    ]
    for release, ami in itertools.product(("2.28.1", "2.30.0", "2.31.1"), ("20260403", "20260625", "20260714", None)):
        found.append(eks("trn1", release, "torch-xla", ami))
    found += [eks("trn2", "2.33.0", "torch-native", ami) for ami in ("20260403", "20260714", None)]
    found += [eks("trn3", r, "torch-xla", "20260625") for r in ("2.28.1", "2.29.1")]
    found += [eks("trn1", r, "torch-native", "20260625") for r in ("2.28.1", "2.33.0")]
    found += [eks("trn1", "2.28.1", "torch-xla", "20260625", v) for v in ("1.33", "1.34", "1.36")]
    found += [eks("trn1n", "2.32.0", "torch-xla", "20260714"), eks("trn2u", "2.29.0", "torch-xla", "20260409")]
    return found


def described(stack: Stack) -> str:
    """One line: the stack, the verdict, why, and the nearest that works."""
    verdict, better = evaluate(CATALOG, stack), nearest(CATALOG, stack)
    nodes = stack.system if stack.engine == "slurm" else f"k8s {stack.version}, AMI {stack.ami or 'chosen'}"
    line = f"{stack.engine:5} {stack.families[0]:5} {nodes:22} {stack.release} {stack.framework:12} {verdict.level:11}"
    why = verdict.reason or (str(verdict.statement) if verdict.statement else "")
    part = f"{verdict.part}: " if why else ""
    if better and better != stack and (verdict.level == "cannot" or verdict.statement):
        parts = {"release": better.release, "framework": better.framework, "system": better.system, "ami": better.ami}
        changed = [f"{k} {v or 'chosen'}" for k, v in parts.items() if v != getattr(stack, k)]
        why += f" -> {', '.join(changed)}"
    return f"{line} {part}{why}".rstrip()


def test_a_readable_table() -> None:
    """Read the difference when a release is added."""
    lines = [described(s) for s in rows()]
    assert len(set(lines)) == len(lines) >= 60
    text = "\n".join(["# engine, family, nodes, Neuron, framework, verdict, why -> nearest that works", *lines, ""])
    assert golden(GOLDEN, text) == text
