"""The named tasks of a comparison: data, model, training and rounds that go together."""

from fedpick.config import Plain

# Compared by the global loss: the paper's figures show it, and of late flights accuracy hardly tells anything.
BY_LOSS = ("synthetic", "quadratic", "nycflights")

# Settings of the paper where it has the problem, with fewer rounds; the evaluations are some fifty.
TASKS: dict[str, Plain] = {
    "synthetic": {
        "data": {"kind": "synthetic"},
        "model": {"kind": "logistic"},
        "local": {"tau": 30, "b": 50, "eta": 0.05},
        "rounds": 150,
        "metrics": {"every": 2},
    },
    "quadratic": {
        "data": {"kind": "quadratic"},
        "model": {"kind": "quadratic"},
        "local": {"tau": 2, "b": 1, "eta": 2e-5},
        "rounds": 15_000,
        "metrics": {"every": 200},
    },
    "digits": {
        "data": {"kind": "digits", "partition": {"kind": "dirichlet", "K": 30, "alpha": 0.3}},
        "model": {"kind": "mlp", "hidden": [32], "dropout": 0.0},
        "local": {"tau": 5, "b": 16, "eta": 0.05},
        "rounds": 100,
    },
    "fashion-mnist": {
        "data": {"kind": "fashion-mnist", "partition": {"kind": "dirichlet", "K": 100, "alpha": 0.3}},
        "model": {"kind": "mlp"},
        "local": {"tau": 30, "b": 64, "eta": 0.005, "weight_decay": 1e-4},
        "rounds": 100,
        "seeds": 3,
        "metrics": {"every": 5},
    },
    # Naturally federated, of packages that the user installs: clients enough and small enough for minutes.
    "shakespeare": {
        "data": {"kind": "shakespeare", "least": 50, "most": 50, "step": 20},
        "model": {"kind": "char-lstm", "vocabulary": 77, "hidden": 32, "layers": 1},
        "local": {"tau": 20, "b": 10, "eta": 2.0},
        "rounds": 50,
        "seeds": 3,
        "metrics": {"every": 10},
    },
    "chem97": {
        "data": {"kind": "chem97", "least": 10},
        "model": {"kind": "logistic"},
        "local": {"tau": 5, "b": 10, "eta": 0.1},
        "rounds": 100,
    },
    "insteval": {
        "data": {"kind": "insteval", "least": 20},
        "model": {"kind": "logistic"},
        "local": {"tau": 5, "b": 10, "eta": 0.05},
        "rounds": 100,
    },
    "movielens": {
        "data": {"kind": "movielens"},
        "model": {"kind": "mlp", "hidden": [32], "dropout": 0.0},
        "local": {"tau": 5, "b": 20, "eta": 0.05},
        "rounds": 100,
    },
    "nycflights": {
        "data": {"kind": "nycflights", "least": 50, "most": 500},
        "model": {"kind": "logistic"},
        "local": {"tau": 5, "b": 20, "eta": 0.05},
        "rounds": 100,
    },
    "watch": {
        "data": {"kind": "watch"},
        "model": {"kind": "mlp", "hidden": [32], "dropout": 0.0},
        "local": {"tau": 10, "b": 20, "eta": 0.1},
        "rounds": 100,
    },
}
OWN: Plain = {
    "model": {"kind": "logistic"},
    "local": {"tau": 10, "b": 20, "eta": 0.05},
    "rounds": 100,
    "metrics": {"every": 2},
}
SEATS = {  # elsewhere a tenth of the clients
    "fashion-mnist": 3,
    "chem97": 20,
    "insteval": 20,
    "movielens": 20,
    "nycflights": 20,
    "watch": 2,
}
