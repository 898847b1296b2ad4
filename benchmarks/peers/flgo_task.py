"""The workload as FLGo wants a task of one's own: clients' data, loader, model, loss, evaluation."""

from collections.abc import Iterator
from typing import Any

import torch_model
from serve import load
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812
from torch.utils.data import TensorDataset  # type: ignore[import-not-found]

task = load()
data = torch_model.tensors(task)
train_data = [TensorDataset(*(part[task.rows(k)] for part in data[:2])) for k in range(task.K)]
test_data = TensorDataset(*data[2:])


class DataLoader:
    """Batches by index, through shuffled data, as many as local training takes."""

    def __init__(self, dataset: Any, batch_size: int, **options: Any) -> None:
        self.dataset, self.b = dataset, min(batch_size, len(dataset))

    def __iter__(self) -> Iterator[Any]:
        order = torch_model.shuffled(len(self.dataset), task.tau, self.b)
        return zip(*(part.index_select(0, order).split(self.b) for part in self.dataset.tensors), strict=True)


def data_to_device(batch: Any, device: Any) -> Any:
    return batch


def eval(model: Any, loader: DataLoader, device: Any) -> dict[str, float]:
    x, y = loader.dataset.tensors
    return {"loss": torch_model.mean_loss(model, x, y)}


def compute_loss(model: Any, batch: Any, device: Any) -> dict[str, Any]:
    x, y = batch
    return {"loss": F.cross_entropy(model(x), y)}


def get_model() -> Any:
    return torch_model.make(task)
