"""The runs of a comparison on a Flower app."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedpick import config
from fedpick.flower import Trial
from fedpick.flower.simulation.app import App
from fedpick.registry import fitting_parameters, is_address, load, nearest, parameters_of, parse_name
from fedpick.storage import sum_of_code, sums_of_files
from fedpick.validation import natural, require

FORMAT = 3  # of the identity: raised when the same settings come to give other results


@dataclass(frozen=True)
class AppRun:
    """One run of an app: a trial with the run config.

    Args:
        app: The app.
        settings: The run config.
        trial: The strategy and the seed; its folder is not set yet.
        code: The sums of one's own code of the strategy, and of files that its parameters name.
    """

    app: App
    settings: dict[str, Any]
    trial: Trial
    code: tuple[str, ...] = ()

    @property
    def strategy(self) -> str:
        """The strategy with what was given for it, for people."""
        given = {"d": self.trial.d, **self.trial.parameters}
        words = [f"{name} = {value}" for name, value in given.items() if value is not None and name != "m"]
        return ", ".join([self.trial.strategy, *words])

    @property
    def label(self) -> str:
        """The strategy and the seed, for people."""
        return f"{self.strategy}, seed {self.trial.seed}"

    @property
    def identity(self) -> str:
        """A name for everything that decides the result."""
        parts = [
            FORMAT,
            self.app.name,
            self.app.digest,
            self.settings,
            {**asdict(self.trial), "folder": ""},
            *self.code,
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def make_runs(
    app: App,
    strategies: Sequence[str],
    *,
    clients: int,
    seeds: int,
    m: int | None = None,
    d: Sequence[int] = (),
    rounds: int | None = None,
    settings: Sequence[str] = (),
) -> list[AppRun]:
    """The runs of a comparison: each strategy (and each d) with each seed; seed by seed, so that mistakes show early.

    Args:
        app: The app.
        strategies: Names as ``fitting_strategy`` takes them.
        clients: K.
        seeds: The number of seeds.
        m: Clients per round; by default those of the app's selector.
        d: Candidates, a strategy for each; by default those of the app's selector, or 2m.
        rounds: Rounds; by default the app's own.
        settings: Such as "batch-size=32", of the run config, or "selector.beta=0.5", of the strategies.
    """
    natural("compare", "seeds", seeds)
    if clients == 1 and len(strategies) > 1:
        rule = "there must be at least 2 clients to choose from (num-supernodes)"
        raise ValueError(f"compare: {rule}, got 1, on which every strategy would train")
    if rounds is not None:
        natural("compare", "rounds", rounds)
    _check_given_once(settings, {"selector.m": m, "selector.d": d or None})
    own: dict[str, Any] = {}
    for setting in (each for each in settings if each.startswith("selector.")):
        config.override(own, setting.removeprefix("selector."), "compare")
    m, d = own.pop("m", m), _several(own.pop("d", d))
    for name, value, low in (("m", m, 1), *(("d", each, m or 1) for each in d)):
        if value is not None:
            _check_range(name, value, low, clients)
    chosen = app.with_settings([each for each in settings if not each.startswith("selector.")])
    taken = {name: _parameters(name) for name in strategies}
    for name in own:
        known = set().union(*taken.values())
        if name not in known:
            rule = "must be a parameter of one of the strategies"
            raise ValueError(f"compare: selector.{name} {rule}, got {own[name]!r}{nearest(name, known)}")
    if d and not any("d" in parameters for parameters in taken.values()):
        raise ValueError(f"compare: -d (selector.d) must be a parameter of one of the strategies, got {d[0]}")
    trials: list[dict[str, Any]] = []
    for name in strategies:
        given = {parameter: value for parameter, value in own.items() if parameter in taken[name]}
        common = {"strategy": name, "clients": clients, "m": m, "rounds": rounds, "parameters": given}
        trials += [{**common, "d": each} for each in (d if d and "d" in taken[name] else (None,))]
    for trial in trials:
        if any(_code_of(trial["strategy"])):
            Trial(**trial, seed=0, folder="").check_form("compare")
    codes = [(*_code_of(trial["strategy"]), *sums_of_files(trial["parameters"].values()).values()) for trial in trials]
    found = []
    for seed in range(seeds):
        seeded = {**chosen, "seed": seed} if isinstance(chosen.get("seed"), int) else chosen
        for trial, code in zip(trials, codes, strict=True):
            found.append(AppRun(app, seeded, Trial(**trial, seed=seed, folder=""), code))
    return found


def _check_given_once(settings: Sequence[str], options: Mapping[str, Any]) -> None:
    """Raise where a setting is given twice, or is not the user's: one of the two would not count."""
    given = {path: f"-{path[-1]}" for path, value in options.items() if value is not None}
    for setting in settings:
        path = setting.partition("=")[0].strip()
        if path == "seed":
            raise ValueError(f"compare: seed must be left to --seeds, which begin at 0, got --set {setting}")
        if path in given:
            raise ValueError(f"compare: {path} must be given once, got {given[path]} and --set {setting}")
        given[path] = f"--set {path}"


def _several(value: Any) -> tuple[Any, ...]:
    """The values of a sweep, or the one that there is, each once."""
    return tuple(dict.fromkeys(value if isinstance(value, list | tuple) else [value]))


def _code_of(name: str) -> Iterator[str]:
    """The sums of one's own code of a strategy and of those that it holds; fedpick's own has none."""
    outer, held = parse_name(name)
    yield from filter(None, [sum_of_code(load(outer))] if is_address(outer) else [])
    for inner in held:
        yield from _code_of(inner)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    rule = f"at least {low} and at most the {high} clients"
    require("compare", name, value, rule, lambda n: (n >= low) & (n <= high), whole=True)


def _parameters(name: str) -> set[str]:
    try:
        return {*fitting_parameters(name), *parameters_of("Selector", parse_name(name)[0])}
    except ValueError as error:
        raise ValueError(f"compare: strategies: {error}") from None
