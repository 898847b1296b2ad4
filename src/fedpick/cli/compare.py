"""``fedpick compare``: which clients should I train on, and what do I gain?"""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedpick.cli._common import (
    TASK,
    By,
    Client,
    Data,
    Debug,
    Output,
    Quiet,
    Settings,
    Standardize,
    X,
    Y,
    announced,
    check_csv,
    check_filled,
    cli_errors,
    columns,
    command_line,
    open_store,
    raise_if_interrupted,
    say_order,
)
from fedpick.cli._comparison import finish
from fedpick.cli._progress import RunProgress
from fedpick.registry import ROLES, is_address, split_names
from fedpick.text import counted, shown

DEFAULT = "synthetic"
EXAMPLES = """
Examples:

  fedpick compare                                        Synthetic(1,1), ten seeds

  fedpick compare digits --strategies rand,pow-d -d 6 -d 12

  fedpick compare forest.csv --client station --y cover --standardize

  fedpick compare my.npz --model mlp --eta 0.02 --target 80% --metric test_accuracy

  fedpick compare experiment.toml --seeds 20 -o more

  fedpick compare --app path/to/flower-app --strategies rand,pow-d,auto --seeds 3
"""


def compare(
    task: Annotated[str | None, typer.Argument(help=TASK, show_default=DEFAULT)] = None,
    strategies: Annotated[
        list[str] | None,
        typer.Option(
            "--strategies",
            "--strategy",
            help="Names with commas (see `fedpick strategies`), cooldown(pow-d), or my_module:MyStrategy; repeatable.",
        ),
    ] = None,
    m: Annotated[int | None, typer.Option("-m", "--seats", help="Clients per round.", show_default="K/10")] = None,
    d: Annotated[list[int] | None, typer.Option("-d", help="Candidates; repeatable.", show_default="2m")] = None,
    rounds: Annotated[int | None, typer.Option(help="Number of rounds.", show_default="task-specific")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs per strategy.", show_default="10; fashion-mnist: 3")] = None,
    target: Annotated[
        str | None, typer.Option(help="Value of the metric, such as 0.8 or 80%.", show_default="what rand reaches")
    ] = None,
    metric: Annotated[
        str | None,
        typer.Option(
            help="Metric of the target: loss, test_accuracy, worst_loss, f1, my_module:metric, ...",
            show_default="test_accuracy; loss without a test set, and for synthetic, quadratic, nycflights",
        ),
    ] = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Also measured on the test set: {', '.join(ROLES['Metric'])}, or my_module:metric; repeatable."
        ),
    ] = None,
    by: By = "rounds",
    eta: Annotated[float | None, typer.Option(help="Learning rate.", show_default="task-specific")] = None,
    tune: Annotated[
        str | None, typer.Option(help="eta: tune the learning rate of each strategy, on other seeds.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help=f"{', '.join(ROLES['ModelSpec'])}; or mynet.py:Net.", show_default="task-specific"),
    ] = None,
    availability: Annotated[
        str | None, typer.Option(help=f"{', '.join(ROLES['Availability'])}; or a file: a table, FedScale's, FLASH's.")
    ] = None,
    devices: Annotated[
        str | None, typer.Option(help="lognormal, or FedScale's client_device_capacity.", show_default="all alike")
    ] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds to train in.", show_default="none")] = None,
    failures: Annotated[float | None, typer.Option(help="Probability that a selected client drops out.")] = None,
    objective: Annotated[str | None, typer.Option(help="cross-entropy, or minus-probability as the paper.")] = None,
    x: X = None,
    y: Y = None,
    client: Client = None,
    standardize: Standardize = False,
    app: Annotated[
        Path | None, typer.Option(help="Folder of a Flower app, to run in Flower's simulation in place of a task.")
    ] = None,
    federation: Annotated[
        list[str] | None,
        typer.Option("--federation-config", help="With --app: as flwr run takes it, such as num-supernodes=10."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --app: runs at once.", show_default="as the cores allow")
    ] = None,
    settings: Settings = None,
    data: Data = None,
    output: Output = Path("comparison"),
    name: Annotated[
        str | None, typer.Option(help="Name of the comparison in the folder.", show_default="that of the task")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="Also write the metrics of all runs to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Compare strategies on a task: a table, a sentence that says who wins, and a page (report.html).

    TASK is one of the data sets below, some of which are in packages that you install, a .toml file, or data of yours:
    .npz, .csv, .tsv, .parquet, .arrow, LEAF's json, or a folder of LEAF or Hugging Face. With --app it is a Flower app
    of yours, in any framework, whose strategy is wrapped in fedpick.flower.Selecting.

    Runs are stored in the output folder and not run again; an interrupted comparison resumes from there.
    """
    with cli_errors(debug, output, data=data), announced(f"compare {task or app or DEFAULT}", quiet or as_json):
        from fedpick import config
        from fedpick.cli._app import check_app, compare_app
        from fedpick.compare import (
            CURRENCIES,
            Choices,
            check_page,
            check_rates,
            check_target,
            choose_target,
            drop_repeats,
            make_experiments,
            report_on,
            tune_rates,
        )
        from fedpick.experiment import missing, names, run_missing
        from fedpick.metrics import METRICS, name_on_test_set
        from fedpick.report import preload_page
        from fedpick.sim import check_direction, check_test_set, resolve_metrics
        from fedpick.validation import one_of

        began, shown = time.monotonic(), not (quiet or as_json)
        names_given = tuple(dict.fromkeys(split_names(",".join(strategies)))) if strategies is not None else ()
        value, percent = number(target), str(target).endswith("%")
        one_of("compare", "by", by, tuple(CURRENCIES))
        check_csv("compare", csv)
        check_filled("compare", name=name, task=task)
        called: Any = {"by": by, "command": command_line()}
        if app is not None or federation or workers:
            foreign: Any = {"task": task, "eta": eta, "tune": tune, "model": model}
            foreign |= {"availability": availability, "devices": devices, "deadline": deadline, "failures": failures}
            foreign |= {"metrics": metrics, "objective": objective, "x": x, "y": y, "client": client, "data": data}
            folder = check_app(app, {**foreign, "standardize": standardize or None})
            wanted: Any = {"m": m, "d": d or (), "rounds": rounds, "seeds": seeds, "settings": settings or ()}
            wanted |= {"federation": federation or (), "workers": workers, "metric": metric, "value": value}
            check_percent("compare", target, metric or "")
            check_target(metric or ("test_accuracy" if percent else "loss"), value)
            report, failed = compare_app(folder, names_given, output, shown=shown, name=name, **wanted, **called)
            check_percent("compare", target, report.comparison.metric)
            finish(report, output, None, name=name, csv=csv, as_json=as_json, began=began)
            if failed:
                raise ValueError(failed)
            return
        task = task or DEFAULT
        measured, metric = metrics_asked(None if metrics is None else ",".join(metrics), metric, _metrics_of(task))
        choices = Choices(
            strategies=names_given,
            m=m,
            d=tuple(d or ()),
            rounds=rounds,
            seeds=seeds,
            eta=eta,
            model=model,
            availability=availability,
            devices=devices,
            deadline=deadline,
            failures=failures,
            objective=objective,
            metrics=measured,
            settings=tuple(settings or ()),
            **columns(x, y, client, standardize),
        )
        if metric is None or not metric.startswith("test_"):  # of others, the task knows the names
            known = (*METRICS, *map(name_on_test_set, ROLES["Metric"]))
            check_target(metric or "loss", value if metric is not None or not percent else None, known)
        if tune is not None:
            one_of("compare", "tune", tune, ("eta",))
        chosen = make_experiments(task, choices)
        summary = chosen[0].federation().summary()
        accuracy = bool(summary.test) and chosen[0].federation().classes > 1  # of one label, all models are right
        metric, value = choose_target(chosen, metric, value, percent=percent, test=accuracy)
        check_target(metric, value, chosen[0].metrics.names)
        check_percent("compare", target, metric)
        check_direction("compare", metric, resolve_metrics("compare", chosen[0].metrics.test))
        check_test_set("compare", metric, chosen[0].federation())
        if tune is not None:
            check_rates(chosen)
        check_page(output)
        store = open_store(output, "compare")
        if shown:
            size = counted(len(chosen), "strategy", "strategies"), counted(len(chosen[0].seeds), "seed")
            typer.echo(f"{summary}\n{', '.join(size)}, {counted(chosen[0].rounds, 'round')}", err=True)
            say_order(chosen[0])
        if tune is not None:
            tuned = tune_rates(chosen, store, lambda *_: raise_if_interrupted(), metric=metric, value=value)
            chosen = drop_repeats(tuned)
            rates = (f"{config.describe(one.selector)}: {one.local.eta:g}" for one in chosen)
            once = "" if len(chosen) == len(tuned) else " (points of the sweep that came to one rate are one)"
            typer.echo(f"learning rates, fastest to the target on other seeds: {'; '.join(rates)}{once}", err=True)
        named = dict(zip(names([experiment.to_plain() for experiment in chosen]), chosen, strict=True))
        stored = {name for name, experiment in named.items() if not missing([experiment], store)}
        preload = threading.Thread(target=preload_page)  # while the runs are compiled and played
        preload.start()
        with RunProgress(named, stored, not shown) as progress:
            run_missing(chosen, store, progress)
        preload.join()
        report = report_on(chosen, store, metric=metric, value=value, name=name or Path(task).stem, **called)
        finish(report, output, summary, name=name, csv=csv, as_json=as_json, began=began)


compare.__doc__ = f"{compare.__doc__}{EXAMPLES}"


def number(text: str | None) -> float | None:
    """A target as it is typed."""
    if text is None:
        return None
    try:
        return float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"compare: target must be a number such as 0.5 or 80%, got {shown(text)}") from None


def check_percent(command: str, target: str | None, metric: str) -> None:
    """Raise where a loss is given as a percentage."""
    if target is not None and target.endswith("%") and metric.endswith("loss"):
        cure = "percentages are of accuracies, --metric test_accuracy"
        raise ValueError(f"{command}: target must be a number where the metric is {metric} ({cure}), got {target!r}")


def metrics_asked(
    metrics: str | None, target: str | None, own: Sequence[str] = ()
) -> tuple[tuple[str, ...], str | None]:
    """The metrics between commas, with the target's where it is of the registry or an address, and the target's name.

    Where a metric of the user's has the name of the target, it is the target.

    Args:
        metrics: The metrics that are asked for.
        target: The metric of the target.
        own: The metrics of the file, which are measured anyway.

    >>> metrics_asked("auc", "f1"), metrics_asked("mine.py:f1", "f1")
    ((('auc', 'f1'), 'test_f1'), (('mine.py:f1',), 'test_f1'))
    >>> metrics_asked(None, "mine.py:brier")
    (('mine.py:brier',), 'test_brier')
    """
    from fedpick.metrics import name_on_test_set

    asked = split_names(metrics) if metrics is not None else []
    if is_address(target):  # the name in the results is that of the function
        asked, target = [*asked, str(target)], name_on_test_set(str(target))
    named = (target or "").removeprefix("test_")
    measured = set(map(name_on_test_set, [*own, *asked]))
    if named in ROLES["Metric"] and f"test_{named}" not in measured:
        asked.append(named)
        measured.add(f"test_{named}")
    return tuple(dict.fromkeys(asked)), f"test_{named}" if f"test_{named}" in measured else target


def _metrics_of(task: str) -> Sequence[str]:
    """The metrics that a file asks for; none where it is no file, or not right."""
    from fedpick import config

    try:
        test = config.read_plain(task)["metrics"]["test"] if config.is_plain(task) else ()
    except (ValueError, KeyError, TypeError):
        return ()
    return [name for name in test if isinstance(name, str)] if isinstance(test, list) else ()
