"""``fedpick map``: where biased selection pays, from a thousand federations."""

from pathlib import Path
from typing import Annotated

import typer

from fedpick.cli._common import Debug, Output, Quiet, announced, check_filled, cli_errors
from fedpick.cli._progress import ProgressBar
from fedpick.text import shown


def map_(
    families: Annotated[
        str | None, typer.Option(help="Families with semicolons; see --list.", show_default="all")
    ] = None,
    cells: Annotated[int | None, typer.Option(min=1, help="Only the first so many cells of each family.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the families.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes, each on a core of the CPU.")] = 1,
    output: Output = Path("map"),
    docs: Annotated[
        Path | None, typer.Option(help="Play nothing; write when-it-pays.md and img/map-*.svg into this folder.")
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--from", help="With --docs: a map.csv.", show_default="the package's")
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Play the federations of the map, by which `fedpick advise` answers: map.csv in the output folder.

    Finished cells are kept in the output folder; after an interruption, the same command continues.

    Examples:

      fedpick map --workers 16

      fedpick map --families "quadratic; chem97" --cells 2

      fedpick map --docs docs
    """
    with cli_errors(debug, output), announced("map", quiet or listed):
        from fedpick.arena import SOURCES, gather, make_cells, play_cells, read_map, write_map_page
        from fedpick.storage import check_own, write_atomic

        if listed:
            for source in SOURCES.values():
                typer.echo(f"{source.name}: {source.K[0]} to {source.K[1]} clients")
            return
        check_filled("map", families=families)
        if table is not None and docs is None:
            raise ValueError(f"map: from must come with --docs, as it plays nothing, got {str(table)!r} alone")
        if docs is not None:
            of_play = {"families": families, "cells": cells, "workers": workers if workers > 1 else None}
            played = next((name for name, value in of_play.items() if value is not None), None)
            if played is not None:
                raise ValueError(f"map: {played} must not be given with --docs, which plays nothing")
            check_own("map", docs, ("when-it-pays.md",))
            typer.echo(str(write_map_page(read_map(table), docs)))
            return
        check_own("map", output, ("map.csv",))
        names = [name.strip() for name in families.split(";")] if families else list(SOURCES)
        for name in names:
            if name not in SOURCES:
                raise ValueError(f"map: families must be among {'; '.join(SOURCES)}, got {shown(name)}")
        chosen = [
            cell for cell in make_cells([SOURCES[name] for name in names]) if cells is None or cell.number < cells
        ]
        with ProgressBar(len(chosen), quiet) as bar:

            def watch(name: str, done: int) -> None:
                bar.reach(f"{done} of {len(chosen)} cells; {name}", done)
                if done % 10 == 0:  # so that there is a table, whatever ends this
                    write_atomic(output / "map.csv", gather(chosen, output), owner="map")

            left_out = play_cells(chosen, output, workers=workers, watch=watch)
        for reason in left_out:
            typer.echo(f"left out: {reason}", err=True)
        typer.echo(str(write_atomic(output / "map.csv", gather(chosen, output), owner="map")))
