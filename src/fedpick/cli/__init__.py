"""The command line: what it can do, each command in a file of its own."""

import typer

from fedpick.cli.compare import compare
from fedpick.cli.data import data
from fedpick.cli.federate import federate
from fedpick.cli.paper import paper
from fedpick.cli.report import report
from fedpick.cli.run import run
from fedpick.cli.strategies import strategies
from fedpick.cli.theory import theory

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Which clients train, and why.")
for command in (compare, run, report, paper, theory, strategies, federate):
    app.command()(command)
app.add_typer(data, name="data")


def main() -> None:
    """Run the command line."""
    app()
