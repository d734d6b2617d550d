"""A fake kubectl for use without an API server: `python -m sandbox.kubernetes.offline VERB -f FILE ...`.

CDK's kubectl provider calls it through `shims/kubectl`. Manifests are validated with the official schemas and
recorded in `$SANDBOX_DIR/kubectl.jsonl`; an invalid one is rejected, as by an API server.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sandbox.kubernetes import schemas


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="kubectl (offline)", allow_abbrev=False)
    parser.add_argument("verb")
    parser.add_argument("--filename", "-f", type=Path)
    parser.add_argument("--kubeconfig")
    args, more = parser.parse_known_args(arguments)
    objects = read(args.filename.read_text()) if args.filename else []
    problems = schemas.validate_all(objects) if args.verb in ("create", "apply") else []
    with (Path(os.environ["SANDBOX_DIR"]) / "kubectl.jsonl").open("a") as out:
        out.write(json.dumps({"verb": args.verb, "arguments": more, "objects": objects, "problems": problems}) + "\n")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if args.verb == "get" and not problems:
        print("error: there is no API server here, so get is not available", file=sys.stderr)
        return 1
    return 1 if problems else 0


def read(text: str) -> list[dict[str, Any]]:
    """The objects of a manifest: consecutive JSON objects (as CDK writes them), or YAML."""
    decoder, objects, rest = json.JSONDecoder(), [], text.strip()
    try:
        while rest:
            found, end = decoder.raw_decode(rest)
            objects.append(found)
            rest = rest[end:].strip()
    except json.JSONDecodeError:
        from ruamel.yaml import YAML

        return [document for document in YAML(typ="safe").load_all(text) if document]
    return objects


if __name__ == "__main__":
    sys.exit(main())
