"""``fedpick federate``: a real federation on this machine, with a process for the server and one for each client."""

import re
import shutil
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import Debug, Output, Quiet, cli_errors, command_line, console


def federate(
    clients: Annotated[int, typer.Option("--clients", "-K", min=1, help="SuperNodes, each with data of its own.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of training.")] = 5,
    strategy: Annotated[str, typer.Option(help="Who trains: rand, pow-d, cpow-d, rpow-d, afl.")] = "pow-d",
    m: Annotated[int | None, typer.Option("--seats", "-m", min=1, help="Seats; a quarter of K unless given.")] = None,
    d: Annotated[int | None, typer.Option("-d", min=1, help="Candidates; twice the seats unless given.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the data and of the picks.")] = 0,
    output: Output = Path("results"),
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a client has to answer or to train.")] = 60.0,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Start a Flower SuperLink and SuperNodes as processes on loopback, train, and stop everything.

    The run is kept as a simulation is, and report.html is drawn of all the runs in the folder.

    Example:

      fedpick federate --clients 8 --rounds 5
    """
    with cli_errors(debug, ended="; the SuperLink and the SuperNodes are stopped"):
        seats = m if m is not None else max(clients // 4, 1)
        candidates = d if d is not None else min(2 * seats, clients)
        if not seats <= candidates <= clients:
            raise ValueError(f"federate: -d must be at least m={seats} and at most K={clients}, got {candidates}")
        settings = {
            "clients": clients,
            "rounds": rounds,
            "strategy": _known(strategy, seats, candidates),
            "m": seats,
            "d": candidates,
            "seed": seed,
            "wait": 30.0 + 10.0 * clients,  # on few cores the processes start one after the other
            "poll-timeout": timeout,
            "train-timeout": timeout,
        }
        _federate(settings, output, quiet)


def _federate(settings: dict[str, Any], output: Path, quiet: bool) -> None:
    from fedpick.cli.federation.network import Network, write_app
    from fedpick.compare import load_report, write_report
    from fedpick.experiment import result_of
    from fedpick.storage import RunStore

    store, began = RunStore(output), time.monotonic()

    def say(text: str) -> None:
        if not quiet:
            typer.echo(f"{time.monotonic() - began:5.0f} s  {text}", err=True)

    with tempfile.TemporaryDirectory(prefix="fedpick-") as folder, Network(Path(folder)) as network:
        network.superlink()
        for client in range(settings["clients"]):
            network.supernode(client)
        say(f"a SuperLink and {settings['clients']} SuperNodes are starting")
        kept = Path(folder) / "kept"
        process = network.run(write_app(Path(folder)), {**settings, "folder": str(kept)})
        told: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line := re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip())
            if "fedpick" in line and ("round" in line or "WARNING" in line or "clients are here" in line):
                say(line[line.index("fedpick") :].removeprefix("fedpick ").removeprefix("fedpick: "))
        runs = list((kept / "runs").glob("*"))
        if process.wait() != 0 or not runs:
            raise ValueError("federate: the run must end well, and did not; its last words: " + " / ".join(told[-5:]))
        shutil.copytree(runs[0], store.folder / "runs" / runs[0].name, dirs_exist_ok=True)
    say("everything is stopped")
    stored = store.load(runs[0].name)
    assert stored is not None
    result = result_of(stored)
    if result.rounds < settings["rounds"]:
        raise ValueError(f"federate: {settings['rounds']} rounds must be played, got {result.rounds}")
    _show(result, settings)
    page, _ = write_report(load_report(output, command=command_line()), output)
    typer.echo(f"kept in {output}, in the form in which simulations are kept; {page} has the charts")


def _show(result: Any, settings: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=f"{settings['strategy']}, {settings['clients']} clients", box=box.SIMPLE_HEAD)
    for name in ("round", "trained", "train loss", "test loss", "accuracy, %", "seconds"):
        table.add_column(name, justify="right")
    records = {name: values[0] for name, values in result.records.items()}
    for t in range(result.rounds):
        table.add_row(
            str(t + 1),
            ", ".join(str(client) for client in records["clients"][t] if client >= 0),
            f"{records['train_loss'][t]:.4g}",
            f"{result.metric('test_loss')[0, t + 1]:.4g}",
            f"{100 * result.metric('test_accuracy')[0, t + 1]:.1f}",
            f"{records['seconds'][t]:.1f}",
        )
    console().print(table)


def _known(name: str, m: int, d: int) -> str:
    """The name itself; an error that lists the strategies where there is none of that name."""
    from fedpick.registry import strategy

    strategy(name, m=m, **({"d": d} if "pow-d" in name else {}))
    return name
