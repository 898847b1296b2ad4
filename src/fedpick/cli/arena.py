"""``fedpick arena``: strategies ranked over many federations."""

import gzip
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Debug, Output, Quiet, announced, check_filled, cli_errors, console, open_store
from fedpick.cli._progress import ProgressBar
from fedpick.registry import fitting_parameters, split_names
from fedpick.text import shown

FILES = ("arena.md", "arena.html", "arena.json")
SMALL_SEEDS, FULL_SEEDS = 3, 10
SMALL = "rand,pow-d,rpow-d,auto,afl,clustered-size"


def arena(
    strategy: Annotated[
        list[str] | None, typer.Option("--strategy", help="Enter this one, too: a name, or my.module:Mine.")
    ] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option(help="Names with commas; repeatable.", show_default="all of the arena, or six in the small one"),
    ] = None,
    families: Annotated[
        str | None, typer.Option(help="Families with semicolons; see --list.", show_default="those of the suite")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="The whole suite; 17 minutes on an H200 with 15 workers.")
    ] = False,
    listed: Annotated[bool, typer.Option("--list", help="List the families and strategies.")] = False,
    seeds: Annotated[int | None, typer.Option(min=2, help="Seeds, each a federation of its own.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes that share the work.")] = 1,
    played: Annotated[
        Path | None, typer.Option("--from", help="An arena.json (or .json.gz): its tables and page; nothing is played.")
    ] = None,
    output: Output = Path("arena"),
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Rank strategies over many federations, with the same seeds and the same tuning for all.

    Finished runs are kept in the output folder; after an interruption, the same command continues.

    Examples:

      fedpick arena

      fedpick arena --strategy my.module:Mine

      fedpick arena --full --workers 4
    """
    with cli_errors(debug, output), announced("arena", quiet or listed):
        from fedpick.arena import FAMILIES, STRATEGIES, from_plain, markdown, rank, rank_table, render_arena
        from fedpick.storage import check_own, write_atomic

        if listed:
            _list(FAMILIES, STRATEGIES)
            return
        check_filled("arena", families=families)
        if played is not None:
            chosen: Any = {"strategy": strategy, "strategies": strategies, "families": families, "full": full or None}
            chosen |= {"seeds": seeds, "workers": workers if workers > 1 else None}
            wrong = next((name for name, value in chosen.items() if value is not None), None)
            if wrong is not None:
                raise ValueError(f"arena: {wrong} must not be given with --from, which plays nothing")
        check_own("arena", output, FILES)
        open_store(output, "arena", *FILES)
        if played is not None:
            plain = _read(played)
        else:
            plain = _play(strategy, strategies, families, full, seeds, workers, output, quiet)
        scores, about = from_plain(plain["problems"]), plain["about"]
        text = f"# The arena: results\n\n{markdown(scores, about)}"
        write_atomic(output / "arena.md", text, owner="arena")
        write_atomic(output / "arena.html", render_arena(scores, about), owner="arena")
        write_atomic(output / "arena.json", json.dumps(plain), owner="arena")
        _show(rank_table(rank(scores)), about)
        typer.echo(f"{output}/arena.html has all tables, as arena.md has, and arena.json the numbers")


def _play(
    strategy: list[str] | None,
    strategies: list[str] | None,
    families: str | None,
    full: bool,
    seeds: int | None,
    workers: int,
    output: Path,
    quiet: bool,
) -> dict[str, Any]:
    """Play what is not in the folder; the scores, and what was played."""
    from fedpick.arena import FAMILIES, STRATEGIES, VERSION, play, to_plain
    from fedpick.storage import device, versions

    chosen, left_out = _chosen(families, FAMILIES, full)
    given = split_names(",".join(strategies)) if strategies is not None else STRATEGIES if full else split_names(SMALL)
    names = list(dict.fromkeys([*given, *(name.strip() for name in strategy or ())]))
    for name in names:
        fitting_parameters(name)  # raises where it is none
    number = seeds or (FULL_SEEDS if full else SMALL_SEEDS)
    steps: Any = ("best", "small", "own") if full else ("best",)
    with ProgressBar(_work(chosen, names, number, len(steps)), quiet) as bar:

        def watch(batch: Any, so_far: Any) -> None:
            bar.at(batch.points[0].name, batch.seconds, so_far.rounds / batch.points[0].rounds)

        scores = play(chosen, names, output, seeds=number, steps=steps, workers=workers, watch=watch)
    about = (
        f"Suite {VERSION}{'' if full else ', the small one'}: {len(scores)} of {len(chosen) * len(steps)} "
        f"problems, those on which rand learns; {number} seeds, each with federations of its own.{left_out}"
    )
    made = ", ".join(f"{name} {version}" for name, version in versions("fedpick", "jax").items())
    return {
        "version": VERSION,
        "seeds": number,
        "about": f"{about} Played with {made} on {device()}.",
        "problems": to_plain(scores),
    }


def _read(file: Path) -> dict[str, Any]:
    """What another arena wrote, compressed or not."""
    from fedpick.arena import from_plain, rank

    try:
        raw = file.read_bytes()
        plain: dict[str, Any] = json.loads(gzip.decompress(raw) if file.suffix == ".gz" else raw)
        rank(from_plain(plain["problems"]))
        str(plain["about"])
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"arena: --from must be a file that fedpick arena wrote, got {file}: {error}") from None
    return plain


def _chosen(families: str | None, known: Any, full: bool) -> tuple[list[Any], str]:
    """The families to play, and a sentence on those whose data are not installed."""
    names = [name.strip() for name in families.split(";")] if families else []
    for name in names:
        if name not in known:
            raise ValueError(f"arena: families must be among {'; '.join(known)}, got {shown(name)}")
        if known[name].cure:
            raise ModuleNotFoundError(f"arena: the data of {name!r} are not installed; {known[name].cure}")
    wanted = [known[name] for name in names] or [family for family in known.values() if full or family.small]
    absent = [f"{family.name} ({family.cure})" for family in wanted if family.cure]
    left_out = f" Left out, because their data are not installed: {'; '.join(absent)}." if absent else ""
    return [family for family in wanted if not family.cure], left_out


def _work(families: list[Any], names: list[str], seeds: int, steps: int) -> float:
    """About how many seconds of work there are, without what is stored."""
    from fedpick.experiment import missing

    plain = [family.experiment(range(seeds)) for family in families]
    tuning = sum(batch.seconds for batch in missing([replace(one, seeds=one.seeds[:1]) for one in plain], None))
    return steps * len(names) * sum(batch.seconds for batch in missing(plain, None)) + 5 * tuning


def _list(families: Any, strategies: Any) -> None:
    from rich.table import Table

    table = Table("family", "clients per round", "rounds", "suite")
    for family in families.values():
        suite = "small, full" if family.small else "full"
        table.add_row(family.name, str(family.m), str(family.rounds), suite if not family.cure else family.cure)
    console().print(table)
    typer.echo(f"Strategies: {', '.join(strategies)}")


def _show(rows: list[list[str]], about: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table("strategy", "mean rank", "times as fast as rand [95 %]", "won", "lost", title=about)
    for row in rows:
        table.add_row(*map(escape, row))
    console().print(table)
