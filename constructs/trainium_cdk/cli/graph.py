"""`trn graph`: the architecture of a stack as a picture."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainium_cdk.cli.diff import App
from trainium_cdk.cli.options import DEFAULT_STACK, EnvFile, described, id_in_app, stack_argument
from trainium_cdk.cli.output import answer, write_file
from trainium_cdk.cli.working import working
from trainium_cdk.errors import UpdateError

if TYPE_CHECKING:
    from trainium_cdk.operations.updates.live import Template


class Format(StrEnum):
    SVG = "svg"
    MERMAID = "mermaid"


def graph(
    ctx: typer.Context,
    stack: Annotated[
        str, stack_argument(help="Stack id as in `cdk deploy`, or the stack's name in the account.")
    ] = DEFAULT_STACK,
    format: Annotated[Format, typer.Option(help="A picture, or text that GitHub draws.")] = Format.SVG,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file. Default: standard output.")] = None,
    template: Annotated[
        Path | None, typer.Option(help="A synthesised template in JSON (cdk.out/STACK.template.json), instead of the app.")
    ] = None,
    env: EnvFile = None,
    app: App = None,
) -> None:  # fmt: skip
    """Draw what a stack consists of, and where data flows.

    From the template that the app synthesises now; nothing is asked of AWS.
    """
    from trainium_cdk.drawing.markup import svg
    from trainium_cdk.operations.graph import mermaid, picture, read
    from trainium_cdk.operations.updates.live import assemble

    if environment := described(ctx):
        stack = id_in_app(stack, environment)
    with working(f"synthesising {stack}", "" if template else f"synth {stack}"):
        found = _template(template) if template else assemble(stack, env, app).template
    architecture = read(stack, found)
    if not architecture.boxes:
        raise UpdateError(f"the template of {stack} has nothing that is drawn: no network, nodes, storage or cluster")
    text = mermaid(architecture) if format is Format.MERMAID else svg(picture(architecture)) + "\n"
    if output is None:
        answer(text, end="")
        return
    write_file(output, text, 0o644)
    answer(str(output.resolve()))


def _template(file: Path) -> Template:
    """Raises UpdateError: it is not a template in JSON."""
    try:
        found = json.loads(file.read_text("utf-8"))
        if isinstance(found["Resources"], dict) and all("Type" in r for r in found["Resources"].values()):
            return dict(found)
    except OSError as e:
        raise UpdateError(f"cannot read {file}: {e.strerror}") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise UpdateError(f"{file} is not a template of CloudFormation in JSON. `cdk synth` writes them to cdk.out")
