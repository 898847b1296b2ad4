"""The command line: what it can do, each command in a file of its own."""

import typer

from fedpick.cli.federate import federate
from fedpick.cli.paper import paper
from fedpick.cli.run import run
from fedpick.cli.theory import theory

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help="Which clients train, and why.")
for command in (run, paper, theory, federate):
    app.command()(command)


def main() -> None:
    """Run the command line."""
    app()
