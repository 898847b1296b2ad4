"""Descriptions of experiments, in TOML, in JSON and as settings of the command line."""

import json

from hypothesis import strategies as st
from support.fuzz import changed, damaged, fuzz, nasty

from fedpick import registry
from fedpick.compare import Choices, make_experiments
from fedpick.experiment import names, read

DOCUMENTS = [
    {
        "name": "first",
        "rounds": 5,
        "seeds": [0, 1],
        "redraw": True,
        "data": {"kind": "synthetic", "alpha": 1.0, "beta": 1.0, "K": 10, "dim": 4, "classes": 3, "seed": 1},
        "model": {"kind": "logistic", "objective": "cross-entropy"},
        "local": {"tau": 2, "b": 5, "eta": [0.1, 0.2], "schedule": {"kind": "step-decay", "at": [2], "factor": 0.5}},
        "selector": [{"kind": "rand", "m": 3}, {"kind": "pow-d", "m": 3, "d": 6}],
        "server": {"optimizer": "average", "eta": 1.0},
        "availability": {"kind": "bernoulli", "probability": 0.5},
        "failures": {"probability": 0.1},
        "devices": {"speed": 100.0, "bandwidth": 1e6, "latency": 0.1, "deadline": 9.0},
        "liars": {"share": 0.1},
        "metrics": {"every": 1, "target": "loss", "value": 0.5, "clients": True, "model": False},
    },
    {
        "rounds": 3,
        "seeds": 2,
        "data": {"kind": "quadratic", "K": 6, "v": 3},
        "model": {"kind": "quadratic", "spread": 10.0},
        "local": {"tau": 1, "b": 1, "eta": 1e-3, "prox": 0.1, "batches": "epochs", "optimizer": "adam"},
        "selector": {"kind": "cooldown", "selector": {"kind": "explore", "selector": {"kind": "rand", "m": 2}}},
        "devices": {"kind": "lognormal", "spread": 1.0, "seed": 0, "deadline": 9.0},
        "availability": {"kind": "day-and-night", "period": 24.0, "day": 0.9, "night": 0.2},
    },
    {
        "rounds": 3,
        "data": {"kind": "arrays", "path": "none.npz", "x": ["a*"], "y": "b", "client": "c", "standardize": True},
        "model": {"kind": "mlp", "hidden": [4], "dropout": 0.5},
        "local": {"tau": 1, "b": 1, "eta": 1e-3},
        "selector": {"kind": "oort", "m": 2},
    },
]


def identities(experiments):
    for experiment in experiments[:3]:
        if "path" not in str(experiment.data):
            experiment.identity(experiment.seeds[0])
    names([experiment.to_plain() for experiment in experiments[:20]])


def toml(value, path=""):
    """A document as TOML, as far as it can hold it."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {toml(part)}" for key, part in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, float):
        return {"nan": "nan", "inf": "inf", "-inf": "-inf"}.get(repr(value), repr(value))
    return (
        json.dumps(value, ensure_ascii=True).replace("\\ud", "\\u0") if isinstance(value, str) else str(value).lower()
    )


def test_documents_in_toml_and_json(total, tmp_path):
    def check(case):
        document, as_json = case
        try:
            lines = [json.dumps(document)] if as_json else [f"{json.dumps(k)} = {toml(v)}" for k, v in document.items()]
        except RecursionError:  # of the writer: what is as deep is read, and not what it was
            lines = ["[" * 10_000 if as_json else f"rounds = {'[' * 10_000}"]
        path = tmp_path / ("e.json" if as_json else "e.toml")
        path.write_text("\n".join(lines), encoding="utf-8", errors="surrogatepass")
        identities(read(path))

    outcomes = fuzz(
        st.tuples(changed(DOCUMENTS, nasty(plain=True), (1, 1, 1, 2, 3)), st.booleans()), check, 0.2 * total
    )
    assert outcomes["result"] > 0.05 * outcomes["sentence"]


def test_files_that_are_damaged(total, tmp_path):
    text = "\n".join(f"{key} = {toml(value)}" for key, value in DOCUMENTS[1].items()).encode()

    def check(content):
        (tmp_path / "e.toml").write_bytes(content)
        identities(read(tmp_path / "e.toml"))

    fuzz(damaged(text), check, 0.05 * total)


def test_settings_and_choices_of_the_command_line(total, tmp_path):
    (tmp_path / "e.toml").write_text("\n".join(f"{key} = {toml(value)}" for key, value in DOCUMENTS[1].items()))
    words = st.sampled_from(
        ["rounds", "local.eta", "selector.m", "selector", "", "a.b.c", "data.K", "seeds.x", "metrics.value"]
    )
    values = st.sampled_from(
        ["1", "0.5", "[1, 2]", "{}", "nan", "[[[", "rand", "", "'", '{ kind = "rand", m = 1 }', "1e400", "-3"]
    )
    setting = st.builds("{}={}".format, words, values) | st.text(max_size=12)
    kinds = st.sampled_from(
        [
            *registry.STRATEGIES,
            "cooldown(pow-d)",
            "cooldown(",
            ")",
            "rand,rand",
            "x:Y",
            "",
            "[/x]",
            "mixture(rand;full)",
        ]
    )
    numbers = st.none() | st.integers(-1, 40) | st.sampled_from([2**31, 2**63])
    options = st.fixed_dictionaries(
        {},
        optional={
            "strategies": st.lists(kinds, max_size=3).map(tuple),
            "m": numbers,
            "d": st.lists(st.integers(-1, 40), max_size=2).map(tuple),
            "rounds": numbers,
            "seeds": numbers,
            "eta": st.none() | st.floats(),
            "model": st.sampled_from([None, "mlp", "logistic", "nothing", "x.py:Net", ""]),
            "availability": st.sampled_from([None, "always", "bernoulli", "none.csv", "[/x]"]),
            "devices": st.sampled_from([None, "lognormal", "none"]),
            "deadline": st.none() | st.floats(),
            "failures": st.none() | st.floats(),
            "objective": st.sampled_from([None, "cross-entropy", "x"]),
            "settings": st.lists(setting, max_size=2).map(tuple),
        },
    )
    tasks = st.sampled_from(["quadratic", "none.npz", "none.toml", "", "quadratc", str(tmp_path / "e.toml"), "\0"])

    def check(case):
        task, chosen, given = case
        if given is not None:
            identities(read(tmp_path / "e.toml", given))
        else:
            identities(make_experiments(task, Choices(**chosen)))

    fuzz(st.tuples(tasks, options, st.none() | st.lists(setting, max_size=3)), check, 0.05 * total)
