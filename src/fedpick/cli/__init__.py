"""The command line: what it can do, each command in a file of its own."""

from importlib.metadata import version
from typing import Annotated

import typer

from fedpick.cli._common import Command, exit_process, replace_unprintable
from fedpick.cli.advise import advise
from fedpick.cli.arena import arena
from fedpick.cli.compare import compare
from fedpick.cli.data import data
from fedpick.cli.federate import federate
from fedpick.cli.map import map_
from fedpick.cli.paper import paper
from fedpick.cli.report import report
from fedpick.cli.run import run
from fedpick.cli.strategies import strategies
from fedpick.cli.theory import theory

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for command in (compare, advise, arena, run, report, paper, theory, strategies, federate):
    app.command(cls=Command)(command)
app.command("map", cls=Command)(map_)
app.add_typer(data, name="data")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"fedpick {version('fedpick')}")
        raise typer.Exit


@app.callback()
def _about(
    shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Client selection for federated learning."""


def main() -> None:
    """Run the command line."""
    replace_unprintable()
    try:
        app()
    except SystemExit as end:
        exit_process(end.code)
