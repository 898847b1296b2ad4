"""``fedpick federate``: a real federation on this machine, with a process for the server and one for each client."""

import math
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedpick.cli._common import Debug, Output, Quiet, cli_errors, command_line, console, ending_signals
from fedpick.cli._comparison import say_remarks
from fedpick.cli._loopback import SHARED, take_loopback

if TYPE_CHECKING:
    from fedpick.results import Result


def federate(
    clients: Annotated[int, typer.Option("--clients", "-K", min=1, help="SuperNodes, each with its own data.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 5,
    strategy: Annotated[
        str, typer.Option(help="Selection strategy: see fedpick strategies; cooldown(pow-d) is a wrapper.")
    ] = "pow-d",
    m: Annotated[
        int | None, typer.Option("--seats", "-m", min=1, help="Clients per round.", show_default="K/4")
    ] = None,
    d: Annotated[int | None, typer.Option("-d", min=1, help="Candidates per round.", show_default="2m")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed for data and selection.")] = 0,
    output: Output = Path("federation"),
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that a client has to answer or to train.")] = 60.0,
    shared_loopback: Annotated[
        bool,
        typer.Option("--shared-loopback", help="Start also where other users of this machine can reach the SuperLink."),
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Start a Flower SuperLink and SuperNodes as processes on loopback, train, and stop everything.

    The processes have a loopback of their own (a network namespace), which no other user of the machine can reach: a
    SuperLink runs the apps of whoever reaches it. Where the system refuses that, --shared-loopback is needed.

    The run is stored as simulations are, and report.html shows all federations in the folder, which holds nothing else.

    Example:

      fedpick federate --clients 8 --rounds 5
    """
    with cli_errors(debug, ended="; the SuperLink and the SuperNodes are stopped"), ending_signals():
        take_loopback()  # before the imports, which start threads
        from fedpick.compare import check_federations, check_page
        from fedpick.config import unstructure
        from fedpick.flower.demo import build_selector
        from fedpick.registry import fitting_parameters

        seats = m if m is not None else max(clients // 4, 1)
        if seats > clients:
            raise ValueError(f"federate: -m must be at most K={clients}, got {seats}")
        if d is not None and "d" not in fitting_parameters(strategy):
            raise ValueError(
                f"federate: -d must be a parameter of the strategy, which {strategy} does not have, got {d}"
            )
        candidates = d if d is not None else min(2 * seats, clients)
        if not seats <= candidates <= clients:
            raise ValueError(f"federate: -d must be at least m={seats} and at most K={clients}, got {candidates}")
        if not math.isfinite(timeout):
            raise ValueError(f"federate: timeout must be a finite number, got {timeout}")
        settings = {
            "clients": clients,
            "rounds": rounds,
            "strategy": strategy,
            "m": seats,
            "d": candidates,
            "seed": seed,
            "wait": 30.0 + 10.0 * clients,  # on few cores the processes start one after the other
            "poll-timeout": timeout,
            "train-timeout": timeout,
        }
        selector = build_selector(settings)
        selector.init(clients)  # a mistake is an error before anything starts
        if hasattr(selector, "question"):
            rule = "strategy must hear exact losses, which the clients here do not disguise"
            raise ValueError(f"federate: {rule}, got {strategy!r}")
        if SHARED and not shared_loopback:
            rule = "--shared-loopback must be given where other users of this machine could reach the SuperLink"
            raise ValueError(f"federate: {rule} ({'; '.join(SHARED)}), got none")
        check_page(output, "federate")
        plain = {"selector": unstructure(selector, "Selector"), "seeds": [seed], "rounds": rounds}
        check_federations(output, "federate", clients=clients, experiment=plain)
        _federate(settings, output, quiet)


def _federate(settings: dict[str, Any], output: Path, quiet: bool) -> None:
    from fedpick.compare import load_report, write_report
    from fedpick.experiment import result_of
    from fedpick.flower.demo import Network, write_app
    from fedpick.storage import RunStore

    store, began = RunStore(output), time.monotonic()

    def echo(text: str) -> None:
        if not quiet:
            typer.echo(f"{time.monotonic() - began:5.0f} s  {text}", err=True)

    with tempfile.TemporaryDirectory(prefix="fedpick-") as folder, Network(Path(folder)) as network:
        network.superlink()
        for client in range(settings["clients"]):
            network.supernode(client)
        echo(f"starting a SuperLink and {settings['clients']} SuperNodes")
        kept = Path(folder) / "kept"
        process = network.run(write_app(Path(folder)), {**settings, "folder": str(kept)})
        log: list[str] = []
        assert process.stdout is not None
        for line in process.stdout:
            log.append(line := re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip())
            if "fedpick" in line and ("round" in line or "WARNING" in line or "connected" in line):
                echo(line[line.index("fedpick") :].removeprefix("fedpick ").removeprefix("fedpick: "))
        runs = [run for _, run in RunStore(kept).runs()]
        if process.wait() != 0 or not runs:
            raise ValueError("federate: the Flower run failed; last log lines: " + " / ".join(log[-5:]))
        with store.locked():
            store.add(runs[0])
    echo("all processes are stopped")
    result = result_of(runs[0])
    if result.rounds < settings["rounds"]:
        raise ValueError(f"federate: {settings['rounds']} rounds must be played, got {result.rounds}")
    _show(result, settings)
    report = load_report(output, command=command_line())
    say_remarks(report)
    page, _ = write_report(report, output)
    typer.echo(f"stored in {output}, in the format of simulations; {page} has the charts")


def _show(result: "Result", settings: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=f"{settings['strategy']}, {settings['clients']} clients", box=box.SIMPLE_HEAD)
    for name in ("round", "clients trained", "train loss", "test loss", "accuracy, %", "seconds"):
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
