"""The server: FedAvg with ``Selecting`` around it, tested on the test images after each round."""

import torch  # type: ignore[import-not-found]
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from fedpick.flower import Selecting
from fedpick.registry import fitting_strategy
from pytorch_app.task import images, network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """As many rounds as the run config says."""
    config = context.run_config
    _, _, x, y = map(torch.as_tensor, images(str(config["data"])))
    torch.manual_seed(int(config["seed"]))
    model = network(x.shape[1])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model.load_state_dict(arrays.to_torch_state_dict())
        with torch.no_grad():
            out = model(x)
        right = float((out.argmax(dim=1) == y).float().mean())
        return MetricRecord({"loss": float(torch.nn.functional.cross_entropy(out, y)), "accuracy": right})

    offered = {name: int(config[name]) for name in ("m", "d", "rounds")}  # a strategy gets those that it takes
    selecting = Selecting(
        FedAvg(fraction_evaluate=0.0),
        fitting_strategy(str(config["strategy"]), **offered),
        seed=int(config["seed"]),
        clients=int(config["clients"]),
        batch=int(config["batch-size"]),
        folder=str(config["folder"]) or None,
    )
    first = ArrayRecord(model.state_dict())
    selecting.start(grid, first, num_rounds=int(config["rounds"]), timeout=300, evaluate_fn=evaluate)
