"""What ``Selecting`` costs on Flower: its own work per round at many listed nodes, and pow-d beside plain FedAvg.

    python benchmarks/flower.py [--simulation] [--processes] [--json FILE]

The first part has a grid without a network, whose clients answer at once; what is counted is the server's round less
the time spent in the grid and its clients. The others play rounds of plain FedAvg, of rpow-d and of pow-d
in turn on one federation, in Flower's simulation runtime (``--simulation``), and with a SuperLink and SuperNodes as
processes on this machine (``--processes``).
"""

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from fedpick import strategy
from fedpick.flower import Selecting
from fedpick.flower.demo.processes import APP, Network

ROUNDS = 15
SELECTORS: dict[str, dict[str, int]] = {"rand": {"m": 10}, "pow-d": {"m": 10, "d": 100}, "rpow-d": {"m": 10, "d": 100}}


class InstantGrid(Grid):
    """K nodes that answer at once, and a clock for the time that is spent here and not in the server."""

    def __init__(self, K: int) -> None:
        self.nodes = [int(node) for node in np.random.default_rng(0).integers(2, 2**62, K)]
        self.place = {node: k for k, node in enumerate(self.nodes)}
        self.sent: dict[str, Message] = {}
        self.spent = 0.0

    def get_node_ids(self) -> list[int]:
        """All nodes."""
        return self.nodes

    def push_messages(self, messages: Any) -> list[str]:
        """Number them."""
        began = time.perf_counter()
        names = []
        for message in messages:
            name = f"{len(self.sent)}-{message.metadata.dst_node_id}"
            message.metadata.__dict__["_message_id"] = name
            self.sent[name] = message
            names.append(name)
        self.spent += time.perf_counter() - began
        return names

    def pull_messages(self, message_ids: Any) -> list[Message]:
        """An answer to each."""
        began = time.perf_counter()
        replies = [self._answer(self.sent[name]) for name in message_ids]
        self.spent += time.perf_counter() - began
        return replies

    def _answer(self, message: Message) -> Message:
        k = self.place[message.metadata.dst_node_id]
        content = RecordDict({"metrics": MetricRecord({"num-examples": 10 + k % 90, "partition-id": k})})
        if message.metadata.message_type == "train":
            content["arrays"] = ArrayRecord(dict(message.content.array_records["arrays"].items()))
            content["metrics"] = MetricRecord({"num-examples": 10, "train_loss": 1.0 + k % 7})
        elif "arrays" in message.content:
            content["metrics"] = MetricRecord({"num-examples": 10, "loss": 1.0 + (k * 37) % 101})
        return Message(content, reply_to=message)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        """Both."""
        return self.pull_messages(self.push_messages(messages))

    def create_message(self, *arguments: Any) -> Message:
        """Deprecated by Flower."""
        raise NotImplementedError

    def set_run(self, run: Any) -> None:
        """There is none."""
        raise NotImplementedError

    @property
    def run(self) -> Any:
        """There is none."""
        raise NotImplementedError


def own_work(K: int) -> dict[str, float]:
    """Milliseconds of the server's own work in a round, medians; FedAvg alone trains as many of the nodes."""
    found = {}
    for name in ("FedAvg", *SELECTORS):
        grid = InstantGrid(K)
        inner = FedAvg(fraction_evaluate=0.0, fraction_train=10 / K, min_train_nodes=10)
        parameters = SELECTORS.get(name, {})
        chosen = inner if name == "FedAvg" else Selecting(inner, strategy(name, **parameters), clients=K, wait=0.0)
        first = ArrayRecord({"w": Array(np.zeros(1000, np.float32))})
        times = []
        for _ in range(ROUNDS):
            grid.spent, began = 0.0, time.perf_counter()
            chosen.start(grid, first, num_rounds=1, timeout=60)
            times.append(1e3 * (time.perf_counter() - began - grid.spent))
        found[name] = statistics.median(times[3:])  # the first calls the roll and compiles
    return found


SERVER = """
import json, time
from pathlib import Path
import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from fedpick import strategy
from fedpick.flower.demo.client import CLASSES, DIM
from fedpick.flower import Selecting

app = ServerApp()


@app.main()
def main(grid, context):
    first = ArrayRecord({"w": Array(np.zeros((DIM + 1, CLASSES), np.float32))})
    K, seconds = int(context.run_config["clients"]), {"FedAvg": [], "rpow-d": [], "pow-d": []}
    programs = {"FedAvg": FedAvg(fraction_evaluate=0.0, fraction_train=2 / K, min_available_nodes=K)}
    for name in ("rpow-d", "pow-d"):
        programs[name] = Selecting(FedAvg(fraction_evaluate=0.0), strategy(name, m=2, d=4), clients=K)
    for turn in range(int(context.run_config["rounds"]) + 1):
        for name, program in programs.items():
            began = time.monotonic()
            program.start(grid, first, num_rounds=1, timeout=120)
            if turn:  # the first has the roll call, and compiles
                seconds[name].append(time.monotonic() - began)
    Path(str(context.run_config["folder"])).write_text(json.dumps(seconds))
"""


def processes(K: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round with real processes: FedAvg, rpow-d and pow-d in turn."""
    import shutil

    import fedpick.flower.demo.client as client

    with tempfile.TemporaryDirectory() as folder, Network(Path(folder)) as network:
        app, found = Path(folder) / "app", Path(folder) / "seconds.json"
        (app / "federation").mkdir(parents=True)
        (app / "federation" / "__init__.py").write_text("")
        (app / "federation" / "server.py").write_text(SERVER)
        shutil.copy(client.__file__, app / "federation" / "client.py")
        (app / "pyproject.toml").write_text(APP)
        network.superlink()
        for k in range(K):
            network.supernode(k)
        run = network.run(app, {"clients": K, "rounds": rounds, "folder": str(found)})
        said = run.communicate()[0]
        if not found.exists():
            sys.exit(said[-2000:])
        seconds: dict[str, list[float]] = json.loads(found.read_text())
        return seconds


def simulation(K: int, rounds: int) -> dict[str, list[float]]:
    """The same in Flower's simulation runtime, whose workers stay alive (``pip install 'flwr[simulation]'``)."""
    from types import SimpleNamespace

    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    import fedpick.flower.demo.client as client

    found = Path(tempfile.mkdtemp()) / "seconds.json"
    config: Any = {"clients": K, "rounds": rounds, "folder": str(found), "seed": 0}
    program: dict[str, Any] = {}
    exec(SERVER.replace("@app.main()", ""), program)
    app, server = ClientApp(), ServerApp()

    def configured(handler: Any) -> Any:
        # This runtime does not pass a run config on to the clients.
        return lambda message, context: handler(
            message, SimpleNamespace(node_config=context.node_config, run_config=config)
        )

    app.query("loss")(configured(client.loss))
    app.train()(configured(client.train))
    server.main()(lambda grid, context: program["main"](grid, SimpleNamespace(run_config=config)))
    resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"log_to_driver": False}}
    run_simulation(server, app, num_supernodes=K, backend_config=resources)
    seconds: dict[str, list[float]] = json.loads(found.read_text())
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--simulation", action="store_true", help="also in Flower's simulation runtime, which needs Ray"
    )
    parser.add_argument("--processes", action="store_true", help="also with real processes, in some minutes")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    _identify()
    print(f"flwr {version('flwr')}, jax {version('jax')}, {os.cpu_count()} cores ({platform.machine()})")
    found: dict[str, Any] = {"own": {}}
    for K in (100, 1000, 10_000):
        found["own"][K] = own_work(K)
        print(f"K = {K:6,}: " + ", ".join(f"{name} {ms:.1f} ms" for name, ms in found["own"][K].items()))
    for kind, measure, rounds in (("simulation", simulation, 20), ("processes", processes, 6)):
        if getattr(arguments, kind):
            found[kind] = measure(4, rounds)
            for name, seconds in found[kind].items():
                low, middle, high = np.percentile(seconds, [25, 50, 75])
                print(f"{kind}, 4 clients, {name}: {middle:.2f} s [{low:.2f}, {high:.2f}] a round")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1))


def _identify() -> None:
    """Newer versions of Flower want to know in which run a message is made."""
    try:
        from flwr.supercore.task_identity import TaskIdentity
    except ImportError:
        return
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


if __name__ == "__main__":
    main()
