"""The server: FedAvg as ever, with ``Selecting`` around it."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedpick.flower import Selecting
from fedpick.registry import fitting_strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ten rounds, unless the run config says otherwise."""
    config = context.run_config
    offered = {name: int(config[name]) for name in ("m", "d", "rounds")}  # a strategy gets those that it takes
    selecting = Selecting(
        FedAvg(fraction_evaluate=1.0),
        fitting_strategy(str(config["strategy"]), **offered),
        seed=int(config["seed"]),
        clients=int(config["clients"]),
        batch=16,
        folder=str(config["folder"]) or None,
    )
    first = ArrayRecord({"w": Array(np.zeros(3))})
    result = selecting.start(grid, first, num_rounds=int(config["rounds"]), timeout=120)
    print("the line:", result.arrays["w"].numpy())
