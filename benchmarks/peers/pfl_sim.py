"""pfl: its simulated backend and ``FederatedAveraging``, tensors in memory, batches by index, central evaluation."""

from collections import deque
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
import torch_model
from pfl.aggregate.simulate import SimulatedBackend  # type: ignore[import-not-found]
from pfl.aggregate.weighting import WeightByUser  # type: ignore[import-not-found]
from pfl.algorithm.base import NNAlgorithmParams  # type: ignore[import-not-found]
from pfl.algorithm.federated_averaging import FederatedAveraging  # type: ignore[import-not-found]
from pfl.callback.central_evaluation import CentralEvaluationCallback  # type: ignore[import-not-found]
from pfl.data.federated_dataset import FederatedDataset  # type: ignore[import-not-found]
from pfl.data.pytorch import PyTorchTensorDataset  # type: ignore[import-not-found]
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams  # type: ignore[import-not-found]
from pfl.metrics import StringMetricName, Weighted  # type: ignore[import-not-found]
from pfl.model.pytorch import PyTorchModel  # type: ignore[import-not-found]
from serve import Metrics, load, serve
from torch import nn
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812


class Shuffled(PyTorchTensorDataset):  # type: ignore[misc]
    """A client's tensors; training goes through them in shuffled order, again and again, for tau steps."""

    def iter(self, batch_size: int) -> Iterator[Any]:
        if batch_size == torch_model.EVALUATION_BATCH:
            yield from super().iter(batch_size)
            return
        tau, count = self.train_kwargs["tau"], len(self)
        b = min(batch_size, count)
        order = torch_model.shuffled(count, tau, b)
        yield from zip(*(part.index_select(0, order).split(b) for part in self.raw_data), strict=True)


class Classifier(nn.Module):  # type: ignore[misc]
    """The network with what pfl asks of a model."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: Any, y: Any, tau: int) -> Any:
        self.network.train()
        return F.cross_entropy(self.network(x), y)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def metrics(self, x: Any, y: Any) -> dict[str, Any]:
        self.network.eval()
        logits = self.network(x)
        loss, right = F.cross_entropy(logits, y, reduction="sum"), (logits.argmax(1) == y).sum()
        return {"loss": Weighted(loss.item(), len(y)), "accuracy": Weighted(right.item(), len(y))}


def main() -> None:
    task = load()
    rng = np.random.default_rng(0)
    data = torch_model.tensors(task)
    x, y = data[:2]
    kwargs = {"tau": task.tau}
    clients = [Shuffled((x[task.rows(k)], y[task.rows(k)]), train_kwargs=kwargs) for k in range(task.K)]
    module = Classifier(torch_model.make(task))
    model = PyTorchModel(module, torch.optim.SGD, torch.optim.SGD(module.parameters(), lr=1.0))
    large = NNEvalHyperParams(local_batch_size=torch_model.EVALUATION_BATCH)
    training = NNTrainHyperParams(
        local_batch_size=task.b, local_num_epochs=None, local_num_steps=task.tau, local_learning_rate=task.eta
    )
    seats: deque[int] = deque()

    def poll(asked: list[int]) -> list[float]:
        return [metric(model.evaluate(clients[k], eval_params=large), "loss") for k in asked]

    def sampler() -> int:
        if not seats:
            seats.extend(task.select(rng, poll))
        return seats.popleft()

    federation = FederatedDataset(lambda client: clients[client], sampler)
    backend = SimulatedBackend(federation, federation, postprocessors=[WeightByUser()])
    whole = {"train": PyTorchTensorDataset(data[:2]), "test": PyTorchTensorDataset(data[2:])}

    def fresh(number: int) -> None:
        module.network.load_state_dict(torch_model.make(task).state_dict())

    def play(number: int) -> None:
        # Central evaluation takes place before the first round, then after each but the first: N times in all.
        callbacks = [
            CentralEvaluationCallback(part, large, format_fn=lambda n, name=name: StringMetricName(f"{name} {n}"))
            for name, part in whole.items()
            if task.evaluates
        ]
        settings = NNAlgorithmParams(
            central_num_iterations=number, evaluation_frequency=number, train_cohort_size=task.m, val_cohort_size=0
        )
        FederatedAveraging().run(
            settings, backend, model, training, large, callbacks=callbacks, send_metrics_to_platform=False
        )

    def evaluate() -> Metrics:
        found = {name: model.evaluate(part, eval_params=large) for name, part in whole.items()}
        return metric(found["train"], "loss"), metric(found["test"], "accuracy")

    def metric(found: Any, name: str) -> float:
        return float(found.to_simple_dict(to_lowercase=True)[name])

    threads = torch_model.choose_threads(play)
    serve({"pfl": version("pfl"), "torch": torch.__version__}, fresh, play, evaluate, threads=threads)


main()
