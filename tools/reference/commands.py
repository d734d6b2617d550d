"""The reference of `trn`, from its own parsers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from tools.reference.markdown import code, plain, table
from trainium_cdk.client.cli.app import app
from trainium_cdk.client.jobs.kinds import kinds


def every() -> Iterator[tuple[typer.Context, Any]]:
    """Each command with its context, in the order of `trn --help`; commands of groups follow their group."""
    root = typer.main.get_command(app)
    yield from _below(root, typer.Context(root, info_name="trn"))


def _below(group: Any, above: typer.Context) -> Iterator[tuple[typer.Context, Any]]:
    for name in group.list_commands(above):
        command = group.resolve_command(above, [name])[1]
        if command.hidden:
            continue
        context = typer.Context(command, info_name=name, parent=above)
        yield context, command
        if hasattr(command, "list_commands"):
            yield from _below(command, context)
        for kind in kinds() if name == "submit" else ():
            if kind != "script":
                one = group.resolve_command(above, [name, kind])[1]
                yield typer.Context(one, info_name=f"submit {kind}", parent=above), one


def page() -> str:
    """The page."""
    parts = [
        "# The commands\n\n`trn`, from its own parsers: what `--help` prints. Exit codes: "
        "[of all commands](../guides/jobs.md#exit-codes). `--json` prints data for scripts. A kind has the options of `trn submit` and its own.\n"
    ]
    shared: list[list[str]] = []
    for context, command in every():
        usage = " ".join(command.get_usage(context).split()).removeprefix("Usage: ")
        rows = [
            [code(record[0]), plain(record[1])]
            for parameter in command.get_params(context)
            if parameter.name != "help" and (record := parameter.get_help_record(context))
        ]
        if context.info_name == "submit":
            shared = rows
        elif str(context.info_name).startswith("submit "):
            rows = [row for row in rows if row not in shared]
        text = inspect.cleandoc(command.help or "").replace("\b", "")
        paragraphs = "\n\n".join(map(plain, text.split("\n\n")))
        parts.append(
            f"## {context.command_path}\n\n{paragraphs}\n\n```\n{usage}\n```\n\n"
            + (table(["option or argument", "what it is"], rows) if rows else "")
        )
    return "\n".join(parts)
