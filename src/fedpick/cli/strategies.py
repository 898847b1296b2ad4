"""``fedpick strategies``: the table of all of them."""

import json
from typing import Annotated

import typer

from fedpick.cli._common import Debug, cli_errors, console


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """List the strategies: who trains, what is asked, what it costs, where it comes from.

    Costs are per round: K clients, m seats, d candidates, w the bytes of a model.

    Example:

      fedpick strategies
    """
    with cli_errors(debug):
        from fedpick.registry import STRATEGIES

        rows = {
            name: {k: v for k, v in entry._asdict().items() if k not in ("address", "fixed")}
            for name, entry in STRATEGIES.items()
        }
        if as_json:
            typer.echo(json.dumps(rows, indent=1))
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for column in ("name", "who trains", "polled", "messages", "traffic", "reference"):
            table.add_column(column, overflow="fold")
        for name, row in rows.items():
            table.add_row(name, *row.values())
        console(wide=118).print(table)
        typer.echo(
            "Costs are per round: K clients, m seats, d candidates, w the bytes of a model. See docs/strategies.md."
        )
