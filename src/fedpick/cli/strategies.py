"""``fedpick strategies``: the table of all of them."""

import json
from typing import Annotated

import typer

from fedpick.cli._common import Debug, cli_errors, console


def strategies(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
    debug: Debug = False,
) -> None:
    """List the strategies: who trains, what is asked and needed, what it costs, where it comes from.

    Costs are per round: K clients, m seats, d candidates, w the bytes of a model, s the length of a sketch. "needs" are
    facts about the clients and measurements of their updates, beside sizes and losses; "work" is the server's.

    Example:

      fedpick strategies
    """
    with cli_errors(debug):
        from fedpick.registry import STRATEGIES, demands

        if as_json:
            rows = {
                name: {
                    **{key: value for key, value in row._asdict().items() if key not in ("address", "fixed")},
                    **demands(name)._asdict(),
                }
                for name, row in STRATEGIES.items()
            }
            typer.echo(json.dumps(rows, indent=1))
            return
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
        for column in ("name", "who trains", "polled", "needs", "messages", "traffic", "work", "reference"):
            table.add_column(column, overflow="fold")
        for name, row in STRATEGIES.items():
            needs, work = demands(name).texts
            table.add_row(name, row.picks, row.polled, needs, row.messages, row.traffic, work, row.reference)
        console(wide=140).print(table)
        typer.echo(
            "Costs are per round: K clients, m seats, d candidates, w the bytes of a model, s the length of a sketch. "
            "See docs/strategies.md."
        )
