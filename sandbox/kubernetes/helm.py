"""A fake helm that records calls: `python -m sandbox.kubernetes.helm ARGUMENTS`.

Charts are in registries that tests cannot reach. Each call is recorded with its values as a line of JSON in
`$SANDBOX_DIR/helm.jsonl`, for tests to compare with the pinned catalogue. Releases are stored in `helm-releases.json`, so
that upgrade, status, list and uninstall respond as helm does. `--create-namespace` creates the namespace if there is a
real API server. What the Neuron chart refuses is refused here, too; of what it creates, the class of its devices is.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from sandbox.kubernetes import neuron_chart
from sandbox.kubernetes.api import Object

_CHART = "Chart.yaml"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0, or 1 with helm's message on standard error."""
    args = _parser().parse_args(arguments)
    folder = Path(os.environ["SANDBOX_DIR"])
    releases = _Releases(folder / "helm-releases.json")
    try:
        return int(args.run(args, releases, folder / "helm.jsonl") or 0)
    except _Refused as problem:
        print(f"Error: {problem}", file=sys.stderr)
        return 1


def calls(sandbox: Path) -> list[dict[str, Any]]:
    """All recorded calls in the directory of a local AWS, oldest first."""
    file = sandbox / "helm.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class _Refused(Exception):
    """An error of helm, with its message."""


class _Releases:
    def __init__(self, file: Path) -> None:
        self._file = file
        self.known: dict[str, dict[str, Any]] = json.loads(file.read_text()) if file.exists() else {}

    def save(self) -> None:
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps(self.known, indent=1))
        part.replace(self._file)


def _install(args: argparse.Namespace, releases: _Releases, record: Path) -> None:
    name = _key(args)
    exists = name in releases.known
    if args.verb == "install" and exists:
        raise _Refused("INSTALLATION FAILED: cannot re-use a name that is still in use")
    if args.verb == "upgrade" and not exists and not args.install:
        raise _Refused(f'UPGRADE FAILED: "{args.release}" has no deployed releases')
    chart: dict[str, Any] = {"chart": args.chart, "repository": args.repo, "version": args.version}
    pulled = Path(args.chart) / _CHART
    if pulled.is_file():
        chart = YAML(typ="safe").load(pulled)
    elif args.chart.startswith("oci://") and not args.version:
        raise _Refused("chart from a registry without --version: which one is installed would be left to chance")
    values: dict[str, Any] = {}
    for file in args.values:
        values |= YAML(typ="safe").load(Path(file)) or {}
    others = {key: of for key, of in releases.known.items() if key != name}
    if why := neuron_chart.refused(chart["chart"], values, others):
        raise _Refused(f"{'UPGRADE' if exists else 'INSTALLATION'} FAILED: {why}")
    if args.create_namespace and args.namespace:
        _make_namespace(args)
    before = releases.known.get(name, {"chart": "", "values": {}})
    _change(args, neuron_chart.objects(before["chart"], before["values"]), neuron_chart.objects(chart["chart"], values))
    revision = releases.known.get(name, {}).get("revision", 0) + 1
    releases.known[name] = {**chart, "values": values, "revision": revision, "status": "deployed"}
    releases.save()
    _note(record, args, {**chart, "values": values})
    print(f"NAME: {args.release}\nNAMESPACE: {args.namespace or 'default'}\nSTATUS: deployed\nREVISION: {revision}")


def _uninstall(args: argparse.Namespace, releases: _Releases, record: Path) -> None:
    if _key(args) not in releases.known:
        raise _Refused(f"uninstall: Release not loaded: {args.release}: release: not found")
    removed = releases.known.pop(_key(args))
    _change(args, neuron_chart.objects(removed["chart"], removed["values"]), [])
    releases.save()
    _note(record, args, {})
    print(f'release "{args.release}" uninstalled')


def _status(args: argparse.Namespace, releases: _Releases, _record: Path) -> None:
    if _key(args) not in releases.known:
        raise _Refused("release: not found")
    found = releases.known[_key(args)]
    print(f"NAME: {args.release}\nSTATUS: {found['status']}\nREVISION: {found['revision']}")


def _list(_args: argparse.Namespace, releases: _Releases, _record: Path) -> None:
    for name, found in sorted(releases.known.items()):
        namespace, _, release = name.partition("/")
        print(release, namespace, found["revision"], found["status"], found["chart"], found["version"], sep="\t")


def _pull(args: argparse.Namespace, _releases: _Releases, record: Path) -> None:
    if not args.version:
        raise _Refused("chart from a registry without --version: which one is fetched would be left to chance")
    place = Path(args.untardir) / args.chart.rpartition("/")[2]
    place.mkdir(parents=True)
    with (place / _CHART).open("w") as out:
        YAML().dump({"chart": args.chart, "repository": None, "version": args.version}, out)
    _note(record, args, {"chart": args.chart, "version": args.version})


def _login(args: argparse.Namespace, _releases: _Releases, record: Path) -> None:
    sys.stdin.read()  # the password, which is not recorded
    _note(record, args, {})
    print("Login Succeeded")


def _key(args: argparse.Namespace) -> str:
    return f"{args.namespace or 'default'}/{args.release}"


def _note(record: Path, args: argparse.Namespace, more: dict[str, Any]) -> None:
    arguments = {key: value for key, value in vars(args).items() if key not in ("run", "kubeconfig", "values", "repo")}
    with record.open("a") as out:
        out.write(json.dumps({**arguments, **more}) + "\n")


def _make_namespace(args: argparse.Namespace) -> None:
    config = [f"--kubeconfig={args.kubeconfig}"] if args.kubeconfig else []
    made = subprocess.run(
        ["kubectl", "create", "namespace", args.namespace, *config], capture_output=True, text=True, check=False
    )
    if made.returncode and "already exists" not in made.stderr:
        raise _Refused(f"create: failed to create: {made.stderr.strip()}")


def _change(args: argparse.Namespace, before: list[Object], after: list[Object]) -> None:
    """Delete and create what others rely on of a chart. A namespace stays, as its deletion takes longer than Helm waits."""
    config = [f"--kubeconfig={args.kubeconfig}"] if args.kubeconfig else []
    for verb, flags, objects in (
        ("delete", ["--ignore-not-found"], [o for o in before if o not in after and o["kind"] != "Namespace"]),
        ("apply", [], after),
    ):
        if not objects:
            continue
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write("\n".join(json.dumps(each) for each in objects))
            file.flush()
            done = subprocess.run(
                ["kubectl", verb, "-f", file.name, *flags, *config], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise _Refused(f"failed to {verb} resource: {done.stderr.strip()}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="helm", allow_abbrev=False)
    commands = parser.add_subparsers(dest="verb", required=True)
    for verb in ("install", "upgrade"):
        made = commands.add_parser(verb, allow_abbrev=False)
        made.set_defaults(run=_install)
        made.add_argument("release")
        made.add_argument("chart")
        for flag in ("--install", "--create-namespace", "--wait", "--atomic", "--skip-crds", "--rollback-on-failure"):
            made.add_argument(flag, action="store_true")
        for option in ("--repo", "--version", "--timeout"):
            made.add_argument(option)
        made.add_argument("--values", "-f", action="append", default=[])
        _common(made)
    for verb, run in (("uninstall", _uninstall), ("status", _status)):
        made = commands.add_parser(verb, allow_abbrev=False)
        made.set_defaults(run=run)
        made.add_argument("release")
        made.add_argument("--wait", action="store_true")
        made.add_argument("--timeout")
        _common(made)
    listed = commands.add_parser("list", allow_abbrev=False)
    listed.set_defaults(run=_list)
    _common(listed)
    pulled = commands.add_parser("pull", allow_abbrev=False)
    pulled.set_defaults(run=_pull)
    pulled.add_argument("chart")
    pulled.add_argument("--version")
    pulled.add_argument("--untar", action="store_true")
    pulled.add_argument("--untardir", default=".")
    registry = commands.add_parser("registry", allow_abbrev=False)
    registry.set_defaults(run=_login)
    registry.add_argument("action", choices=["login"])
    registry.add_argument("host")
    registry.add_argument("--username", "-u")
    registry.add_argument("--password-stdin", action="store_true", required=True)
    return parser


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--namespace", "-n")
    parser.add_argument("--kubeconfig")


if __name__ == "__main__":
    sys.exit(main())
