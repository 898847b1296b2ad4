"""The app of parity.py in Flower's simulation runtime: four clients in the workers of Ray."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).parent))

import parity
from flwr.app import Context
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

settings = json.loads(sys.argv[1])
client, server = ClientApp(), ServerApp()


def configured(handler):
    """A handler with the run config, which this runtime does not pass on to clients."""

    def handle(message, context):
        return handler(message, SimpleNamespace(node_config=context.node_config, run_config=settings))

    return handle


client.query("loss")(configured(parity.loss))
client.train()(configured(parity.train))


@server.main()
def main(grid: Grid, context: Context) -> None:
    parity.main(grid, SimpleNamespace(run_config=settings))


resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2, "log_to_driver": False}}
run_simulation(server, client, num_supernodes=4, backend_config=resources)
