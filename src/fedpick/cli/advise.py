"""``fedpick advise``: what to use on a federation, and what to expect of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import (
    Client,
    Data,
    Debug,
    Settings,
    Standardize,
    X,
    Y,
    announced,
    cli_errors,
    columns,
    console,
    only_one,
)
from fedpick.registry import ROLES
from fedpick.text import shown

PANEL = "By numbers, without data"


def advise(
    task: Annotated[
        str | None, typer.Argument(help="As for compare: your data (.npz, .csv, .parquet, a folder), a .toml, a name.")
    ] = None,
    m: Annotated[
        int | None, typer.Option("-m", "--m", "--seats", help="Clients per round.", show_default="K/10")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(ROLES['ModelSpec'])}; or mynet.py:Net.", show_default="task-specific"),
    ] = None,
    tau: Annotated[int | None, typer.Option(help="Local steps.", show_default="task-specific")] = None,
    b: Annotated[int | None, typer.Option("-b", "--b", help="Samples per step.", show_default="task-specific")] = None,
    eta: Annotated[float | None, typer.Option(help="Learning rate.", show_default="task-specific")] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds that are planned.", show_default="task-specific")] = None,
    x: X = None,
    y: Y = None,
    client: Client = None,
    standardize: Standardize = False,
    settings: Settings = None,
    data: Data = None,
    clients: Annotated[
        int | None, typer.Option(help="Number of clients, in place of data.", rich_help_panel=PANEL)
    ] = None,
    step: Annotated[
        float | None, typer.Option(help="Learning rate over the largest stable one.", rich_help_panel=PANEL)
    ] = None,
    labels: Annotated[
        float | None, typer.Option(help="How far labels differ: 0 alike, 1 apart.", rich_help_panel=PANEL)
    ] = None,
    gradients: Annotated[
        float | None, typer.Option(help="Mean |grad F_k|^2 over |grad F|^2.", rich_help_panel=PANEL)
    ] = None,
    gini: Annotated[float | None, typer.Option(help="Gini's coefficient of sizes.", rich_help_panel=PANEL)] = None,
    convex: Annotated[
        bool | None, typer.Option("--convex/--not-convex", help="Whether the loss is convex.", rich_help_panel=PANEL)
    ] = None,
    table: Annotated[
        Path | None, typer.Option("--map", help="Another map.csv of `fedpick map`.", show_default="the package's")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, and nothing else.")] = False,
    debug: Debug = False,
) -> None:
    """Say which strategy to use on a federation, and how many times as fast as rand it is to be expected.

    The answer is that of the nearest of a thousand federations, with an interval that holds for 80 % of those of other
    families; or that nothing is known. The federation is described by its data, or where these cannot be shared, by
    numbers: those that are left out are not compared.

    Examples:

      fedpick advise my.npz -m 5 --eta 0.05

      fedpick advise forest.csv --client station --y cover --standardize --model mlp

      fedpick advise --clients 200 -m 10 --tau 10 --step 0.1 --labels 0.4
    """
    with cli_errors(debug, data=data), announced(f"advise {task or ''}".strip(), as_json or task is None):
        from fedpick.arena import Features, describe, read_map, to_plain_advice
        from fedpick.arena import advise as ask

        numbers = {"clients": clients, "step": step, "labels": labels, "gradients": gradients}
        numbers |= {"gini": gini, "convex": convex}
        given = [name for name, value in numbers.items() if value is not None]
        if task is not None:
            if given:
                raise ValueError(f"advise: {given[0]} must not be given with data, which have it, got {shown(task)}")
            chosen = _experiment(
                task,
                {"m": m, "model": model, "eta": eta, "rounds": rounds, **columns(x, y, client, standardize)},
                (
                    *(settings or ()),
                    *(f"local.{name}={value}" for name, value in (("tau", tau), ("b", b)) if value is not None),
                ),
            )
            if unlike := _not_on_map(chosen):
                what = f"the problems of the map have none of {', '.join(unlike)}, which do not count here"
                typer.echo(f"note: {what}; fedpick compare plays them", err=True)
            features = describe(
                chosen.federation(), chosen.model, m=chosen.selector.m, local=chosen.local, rounds=chosen.rounds
            )
        else:
            of_data: Any = {"model": model, "b": b, "eta": eta, "x": x, "y": y, "client": client, "set": settings}
            of_data["standardize"] = standardize or None
            wrong = next((name for name, value in of_data.items() if value is not None), None)
            if clients is None:
                raise ValueError("advise: name data, or give numbers: --clients 200 -m 10, and more that is known")
            if wrong is not None:
                raise ValueError(f"advise: {wrong} must come with data; by numbers the learning rate is --step")
            known = {name: value for name, value in numbers.items() if name != "clients"}
            seats = max(1, clients // 10) if m is None else m
            features = Features(K=clients, m=seats, tau=tau, rounds=rounds, **known)  # type: ignore[arg-type]
        if features.m == features.K:
            raise ValueError(f"advise: m must be below the {features.K} clients to leave a choice, got {features.m}")
        advice = ask(read_map(table), features)
        if as_json:
            typer.echo(json.dumps(to_plain_advice(advice, features), indent=1))
        else:
            _show(advice, features)


def _experiment(task: str, options: dict[str, Any], settings: tuple[str, ...]) -> Any:
    from fedpick.compare import Choices, make_experiments

    try:
        return only_one("advise", make_experiments(task, Choices(strategies=("rand",), settings=settings, **options)))
    except ValueError as error:
        raise ValueError(str(error).replace("compare: ", "advise: ", 1)) from None


def _not_on_map(chosen: Any) -> list[str]:
    """The settings of an experiment that no problem of the map has, and no feature tells, by their paths."""
    from fedpick.experiment import differences

    parts = {name: getattr(type(chosen), name) for name in ("availability", "failures", "liars", "server")}
    local = replace(chosen.local, optimizer="sgd", schedule=type(chosen.local).schedule, prox=None)
    devices = replace(chosen.devices, deadline=float("inf"))  # slow ones alone cost no rounds
    found = differences([one.to_plain() for one in (chosen, replace(chosen, local=local, devices=devices, **parts))])[0]
    own = {".".join(path.split(".")[: 2 if path.startswith(("local.", "devices.")) else 1]) for path in found}
    objective = getattr(chosen.model, "objective", "cross-entropy")
    return sorted(own | ({f"model.objective {objective}"} if objective != "cross-entropy" else set()))


def _show(advice: Any, features: Any) -> None:
    from rich.table import Table

    typer.echo("; ".join(f"{name} {_text(value)}" for name, value in features.plain().items() if value is not None))
    if not advice.known:
        away = f"{advice.distance:.2f} away, and advice was tested up to {advice.limit:.2f}"
        typer.echo(f"\nNothing is known here: the nearest problems are {away} (most unlike them: {advice.unlike}).")
        typer.echo("fedpick compare plays the strategies on your data.")
        return
    if advice.strategy == "rand":
        typer.echo("\nUse rand: of problems like yours, none of the others is faster on average.")
    else:
        speed, final = advice.expected[advice.strategy]
        name = advice.strategy if advice.d is None else f"pow-d with d = {advice.d}"
        times = f"{speed.mean:.2f} times as fast as rand, in rounds (80 %: {speed.low:.2f} to {speed.high:.2f})"
        last = f"a last loss of {final.mean:.2f} times rand's ({final.low:.2f} to {final.high:.2f})"
        sure = advice.surely_faster
        if advice.strategy in sure:
            typer.echo(f"\nUse {name}: expect {times}, and {last}.")
        elif sure:
            typer.echo(
                f"\nFaster than rand, 80 % sure: {' and '.join(sure)}. Best on average is {name}: {times}, and {last}."
            )
        else:
            typer.echo(
                "\nNothing is surely faster than rand, which is the cheapest. "
                f"Best on average is {name}: {times}, {last}."
            )
        _show_traffic(advice, features)
    titles = "times as fast as rand [80 %]", "last loss over rand's [80 %]", "bytes of a round over rand's"
    table = Table("strategy", *titles, box=None)
    for name, (speed, final) in advice.expected.items():
        ranges = (f"{each.mean:.2f} [{each.low:.2f}, {each.high:.2f}]" for each in (speed, final))
        table.add_row(name, *ranges, _traffic(name, features))
    console().print(table)
    families = ", ".join(f"{name} ({number})" for name, number in advice.families.items())
    typer.echo(f"From the nearest problems: {families}.")
    typer.echo(
        "Times as fast: in rounds, the mean over the ways to 50, 80 and 95 % of what rand gains in training loss; to "
        "one target, by accuracy, as in fedpick compare, and on one draw of the data it may be another."
    )


def _traffic(name: str, features: Any) -> str:
    """Times the bytes of a round of rand; auto asks fewer clients where that does not pay, and at last none."""
    from fedpick.arena import round_traffic

    times = f"{round_traffic(name, features):.1f}"
    return f"1.0 to {times}" if name == "auto" else times


def _show_traffic(advice: Any, features: Any) -> None:
    """What the polls of the advised strategy cost, also to the same target."""
    from fedpick.arena import round_traffic

    most = round_traffic(advice.strategy, features)
    if most > 1:
        up_to, speed = "up to " if advice.strategy == "auto" else "", advice.expected[advice.strategy].speed
        middle, least, large = (most / times for times in (speed.mean, speed.high, speed.low))
        typer.echo(
            "It polls clients before they train, which sends the model once more to each: a round moves "
            f"{up_to}{most:.1f} times the bytes of one of rand, and the way to the same loss {up_to}{middle:.1f} times "
            f"(80 %: {least:.1f} to {large:.1f})."
        )


def _text(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else f"{value:.3g}"
