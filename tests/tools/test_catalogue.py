"""The generated tables against the vendors' files, of which the part that counts is kept here.

`n2-manifest.json` (aws-neuron/aws-neuron-sdk at 81ce03ae) and `eks-changelog.md` (awslabs/amazon-eks-ami at 81fec2e8) are cut down to
the releases, packages and node images that the catalogue takes; nothing in them is changed. Both are under MIT-0.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from tools import catalogue
from trainium_cdk.description.catalog import Catalog
from trainium_cdk.description.catalog.models import numbers

HERE = Path(__file__).parent
MANIFEST = HERE / "n2-manifest.json"
CHANGELOG = HERE / "eks-changelog.md"
CATALOG = Catalog.load()


def test_the_tables_are_what_the_command_writes(tmp_path: Path) -> None:
    catalogue.main(["--manifest", str(MANIFEST), "--changelog", str(CHANGELOG), "--data", str(tmp_path)])
    ours = files("trainium_cdk.description.catalog") / "data"
    assert (tmp_path / "releases.yaml").read_text("utf-8") == (ours / "releases.yaml").read_text("utf-8")
    # the kept part of the change log is shorter: its content is in the table literally
    table, kept = ((folder / "amis.yaml").read_text("utf-8") for folder in (ours, tmp_path))
    assert not set(kept.splitlines()) - set(table.splitlines())
    found = {date: list(minors) for date, minors in yaml.safe_load(kept)["amis"].items()}
    assert found == {d: ["1.36", "1.35", "1.33"] for d in ("20260714", "20260625")} | {"20260318": ["1.35", "1.33"]}


def test_a_column_of_a_table_whose_cells_span_others() -> None:
    rows = (
        '<td>kernel</td><td colspan="2">6.12</td>',
        "<td>efa</td><td>1</td><td> 2 </td>",
        "<td>short</td><td>1</td>",
    )
    table = "<th>Package</th><th>A</th><th>B</th>" + "".join(f"<tr>{row}" for row in rows)
    assert catalogue._column(table.partition("<th>Package</th>")[2], "B") == {"kernel": "6.12", "efa": "2"}


def test_every_release_of_the_manifest_is_in_the_catalogue_with_its_own_versions() -> None:
    """Read here once more and in another way than the command does."""
    names = {
        "aws-neuronx-dkms": lambda r: r.dkms,
        "aws-neuronx-runtime-lib": lambda r: r.runtime,
        "aws-neuronx-collectives": lambda r: r.collectives,
        "aws-neuronx-tools": lambda r: r.tools,
        "neuronx-cc": lambda r: r.compiler,
    }
    checked = 0
    for release in json.loads(MANIFEST.read_text("utf-8"))["neuron_releases"]:
        version = release["neuron_version"]
        if numbers(version) < catalogue.OLDEST_RELEASE and version != "2.26.1":
            continue
        torch = (2, 8) if version == "2.26.1" else (2, 9)
        ours = CATALOG.release(release["neuron_version"])
        for package in release["packages"]:
            if package["name"] in names:
                assert names[package["name"]](ours) == package["version"], (ours.version, package["name"])
                checked += 1
            if package["name"] == "torch-neuronx" and numbers(package["version"])[:2] == torch:
                wheel = ours.frameworks["torch-xla"]
                assert (wheel.version, list(wheel.pythons)) == (
                    package["version"],
                    package["supported_python_versions"],
                )
                assert {f.rstrip("nu") for f in wheel.families} == {
                    i for i in package["supported_instances"] if i.startswith("trn")
                }
            if package["name"] == "jax_neuronx" and version != "2.26.1":
                jax = ours.frameworks["jax"]
                assert (jax.version, list(jax.pythons)) == (package["version"], package["supported_python_versions"])
                plugins = {p["version"] for p in release["packages"] if p["name"] == "libneuronxla"}
                [plugin] = [p for p in plugins if len(plugins) == 1 or p.startswith("3.")]
                assert f"libneuronxla=={plugin}" in jax.requires
    assert checked == 5 * 8


def test_node_images() -> None:
    amis = CATALOG.amis("1.35")
    assert list(amis) == sorted(amis, reverse=True)
    # the last with a driver that older runtimes accept, and the first without
    assert amis["20260625"].driver == "2.28.0.0"
    assert amis["20260714"].driver == "2.29.0.0"
    assert all(ami.version.endswith(f"-{date}") for date, ami in amis.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --manifest, --changelog, --slurm, --charts or several of them"),
        (["--manifest", "no-such-file"], "No such file"),
        (["--manifest", __file__], "has an unexpected form"),
        (["--changelog", __file__], "has an unexpected form"),
    ],
)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        catalogue.main([*arguments, "--data", str(tmp_path)])
    assert caught.value.code not in (0, None)
    assert message in f"{caught.value.code} {capsys.readouterr().err}"
    assert not list(tmp_path.iterdir())


def test_the_parameters_of_slurm_conf() -> None:
    old = """
s_p_options_t slurm_conf_options[] = {
	{"MaxJobCount", S_P_UINT32},
	{"FrontendName", S_P_ARRAY, _parse_frontend, _destroy},
	{NULL}
};
	static s_p_options_t _nodename_options[] = {
		{"CPUs", S_P_UINT16},
		{NULL}
	};
	static s_p_options_t _partition_options[] = {
		{"Default", S_P_BOOLEAN}, /* YES or NO */
		{NULL}
	};
	static s_p_options_t _downnodes_options[] = {
		{"Reason", S_P_STRING},
		{NULL}
	};
	static s_p_options_t _nodeset_options[] = {
		{"Feature", S_P_STRING},
		{NULL}
	};
"""
    new = old.replace(
        '{"FrontendName", S_P_ARRAY, _parse_frontend, _destroy}', '{.key = "MetricsType", .type = S_P_STRING}'
    )
    assert catalogue.slurm_lines({"24.11": old, "25.11": new}) == {
        "SlurmConf": {
            "FrontendName": {"type": "text", "in": ["24.11"]},
            "MaxJobCount": {"type": "uint32"},
            "MetricsType": {"type": "text", "in": ["25.11"]},
        },
        "NodeName": {"CPUs": {"type": "uint16"}},
        "PartitionName": {"Default": {"type": "boolean"}},
        "NodeSet": {"Feature": {"type": "text"}},
        "DownNodes": {"Reason": {"type": "text"}},
    }
    with pytest.raises(ValueError, match="has no _nodename_options"):
        catalogue.slurm_lines({"25.11": old.replace("_nodename", "_node")})


def test_the_values_of_charts_and_addons(tmp_path: Path) -> None:
    given, data = tmp_path / "given", tmp_path / "data"
    given.mkdir()
    data.mkdir()
    (given / "a-chart-v1.2.0.yaml").write_text(
        "enabled: true\nnone: ~\nfree: {}\nmany: [1]\nimage: {tag: '1', port: 1}\na: {b: {c: {d: {e: 1}}}}\n"
    )
    schema = {
        "$ref": "#/definitions/Cni",
        "definitions": {
            "Cni": {"type": "object", "properties": {"env": {"$ref": "#/definitions/Env"}, "more": {"type": ["object", "null"]}}},
            "Env": {"type": "object", "properties": {"WARM": {"type": "string", "format": "integer"}}},
        },
    }  # fmt: skip
    (given / "cni-v1.15.1-eksbuild.1.json").write_text(json.dumps({"configurationSchema": json.dumps(schema)}))
    catalogue.main(["--charts", str(given), "--data", str(data)])
    assert yaml.safe_load((data / "charts.yaml").read_text("utf-8"))["charts"] == {
        "a-chart": {
            "version": "v1.2.0",
            "keys": {
                "a": {"b": {"c": {"d": "object"}}},
                "free": "object",
                "image": {"port": "integer", "tag": "string"},
                "many": "array",
                "none": "any",
                "enabled": "boolean",
            },
        },
        "cni": {"version": "v1.15.1-eksbuild.1", "keys": {"env": {"WARM": "string of integer"}, "more": "object"}},
    }
    (given / "values.yaml").touch()
    with pytest.raises(SystemExit, match=r"values.yaml is not named NAME-VERSION.yaml"):
        catalogue.main(["--charts", str(given), "--data", str(data)])
