"""The same models in PyTorch: ``python torch_models.py workload.npz NAME index|best cpu|cuda``.

``index`` is the usual loop, with ``torch.optim.SGD`` and batches by index. ``best`` is the fastest we could write:
batches of a client gathered at once, channels last, no optimiser, fused updates. On a GPU both use TF32, as JAX does.
"""

import json
import sys
import time
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found]
from model_workloads import EACH, SIDE, WORKLOADS, K, load
from serve import most_memory
from torch import nn
from torch.nn import functional as F  # type: ignore[import-not-found]  # noqa: N812


class Block(nn.Module):  # type: ignore[misc]
    """Two 3x3 convolutions with group normalisation, and the shortcut around them."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.one = nn.Conv2d(before, width, 3, stride, padding=1, bias=False)
        self.two = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for _ in range(3 if stride > 1 else 2))
        self.short = nn.Conv2d(before, width, 1, stride, bias=False) if stride > 1 else None

    def forward(self, x: Any) -> Any:
        inner = self.norms[1](self.two(F.relu(self.norms[0](self.one(x)))))
        return F.relu(inner + (x if self.short is None else self.norms[2](self.short(x))))


class Lstm(nn.Module):  # type: ignore[misc]
    """An embedding, layers of LSTM, and a dense layer on the last state."""

    def __init__(self, hidden: int, layers: int, classes: int) -> None:
        super().__init__()
        self.codes, self.lstm = nn.Embedding(128, 8), nn.LSTM(8, hidden, layers)
        self.last = nn.Linear(hidden, classes)

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(self.codes(x.T))[0][-1])


class Adapted(nn.Module):  # type: ignore[misc]
    """A frozen transformer with adapters of the query and value matrices, and a last layer."""

    def __init__(self, base: dict[str, Any], layers: int, heads: int, rank: int, classes: int) -> None:
        super().__init__()
        self.layers, self.heads, self.width = layers, heads, base["code"].shape[1]
        self.names = {name: f"w{place}" for place, name in enumerate(base)}
        for name, array in base.items():
            self.register_buffer(self.names[name], array)
        shapes = [(self.width, rank) for _ in range(2 * layers)]
        self.a = nn.ParameterList(self.width**-0.5 * torch.randn(shape) for shape in shapes)
        self.b = nn.ParameterList(torch.zeros(shape[::-1]) for shape in shapes)
        self.last = nn.Linear(self.width, classes)

    def forward(self, x: Any) -> Any:
        base = {name: getattr(self, place) for name, place in self.names.items()}
        n, length = x.shape
        states = F.embedding(x, base["code"]) + base["place"]
        for i in range(self.layers):
            inner = F.layer_norm(states, (self.width,), base[f"{i}.scale1"], base[f"{i}.shift1"])
            query = inner @ base[f"{i}.query"] + inner @ self.a[2 * i] @ self.b[2 * i]
            value = inner @ base[f"{i}.value"] + inner @ self.a[2 * i + 1] @ self.b[2 * i + 1]
            parts = (query, inner @ base[f"{i}.key"], value)
            split = [part.view(n, length, self.heads, -1).transpose(1, 2) for part in parts]
            mixed = F.scaled_dot_product_attention(*split).transpose(1, 2).reshape(n, length, self.width)
            states = states + mixed @ base[f"{i}.out"]
            inner = F.layer_norm(states, (self.width,), base[f"{i}.scale2"], base[f"{i}.shift2"])
            inner = F.gelu(inner @ base[f"{i}.up"] + base[f"{i}.up_shift"], approximate="tanh")
            states = states + inner @ base[f"{i}.down"] + base[f"{i}.down_shift"]
        return self.last(F.layer_norm(states, (self.width,), base["scale"], base["shift"]).mean(1))


def make(workload: Any, base: dict[str, Any]) -> Any:
    """The model of a workload."""
    if workload.name == "cnn":
        one, two = workload.channels
        first = [nn.Conv2d(1, one, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(one, two, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
        dense = [nn.Linear((SIDE // 4) ** 2 * two, 512), nn.ReLU(), nn.Linear(512, workload.classes)]
        return nn.Sequential(*first, *second, *dense)
    if workload.name == "resnet":
        widths = workload.channels
        blocks = [Block(a, b, 1 + (i > 0)) for i, (a, b) in enumerate(zip((widths[0], *widths), widths, strict=False))]
        stem = [nn.Conv2d(1, widths[0], 3, padding=1, bias=False), nn.GroupNorm(8, widths[0]), nn.ReLU()]
        return nn.Sequential(
            *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], workload.classes)
        )
    if workload.name == "lstm":
        return Lstm(workload.hidden, workload.layers, workload.classes)
    return Adapted(base, workload.layers, workload.heads, workload.rank, workload.classes)


def main() -> None:
    file, name, style, device = sys.argv[1:]
    workload, arrays = WORKLOADS[name], load(file)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    base = {key[5:]: torch.from_numpy(value).to(device) for key, value in arrays.items() if key.startswith("base/")}
    y = torch.from_numpy(arrays["y"]).to(device)
    if workload.T:
        x = torch.from_numpy(arrays["x"].astype(np.int64)).to(device)
    else:
        x = torch.from_numpy((arrays["x"].astype(np.float32) / 255 - 0.1307) / 0.3081)[:, None].to(device)
    images = style == "best" and not workload.T
    x = x.contiguous(memory_format=torch.channels_last) if images else x
    rng, model = np.random.default_rng(0), make(workload, base).to(device)
    server: list[Any] = []
    model = model.to(memory_format=torch.channels_last) if images else model
    params = list(model.parameters())

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def put(weights: list[Any]) -> None:
        torch._foreach_copy_(params, weights)

    def fresh() -> None:
        torch.manual_seed(0)
        server[:] = [w.detach().to(device) for w in make(workload, base).parameters()]
        put(server)

    def by_index(client: int) -> None:
        optimizer = torch.optim.SGD(params, lr=workload.eta)
        for _ in range(workload.tau):
            rows = client * EACH + torch.randperm(EACH, device=device)[: workload.b]
            optimizer.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimizer.step()

    def gathered(client: int) -> None:
        orders = torch.rand(workload.tau, EACH, device=device).argsort(1)[:, : workload.b] + client * EACH
        rows = orders.reshape(-1)
        for xs, ys in zip(x[rows].split(workload.b), y[rows].split(workload.b), strict=True):
            gradient = torch.autograd.grad(F.cross_entropy(model(xs), ys), params)
            with torch.no_grad():
                torch._foreach_add_(params, gradient, alpha=-workload.eta)

    def play(number: int) -> float:
        wait()
        start = time.perf_counter()
        for _ in range(number):
            total = [torch.zeros_like(w) for w in server]
            for client in rng.integers(0, K, workload.m):
                put(server)
                (gathered if style == "best" else by_index)(int(client))
                with torch.no_grad():
                    torch._foreach_add_(total, params, alpha=1 / workload.m)
            server[:] = total
            put(server)
        wait()
        return time.perf_counter() - start

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    def loss() -> float:
        with torch.inference_mode():
            parts = zip(x.split(512), y.split(512), strict=True)
            return float(sum(F.cross_entropy(model(xs), ys, reduction="sum") for xs, ys in parts)) / len(y)

    fresh()
    play(1)
    if device == "cpu":
        taken = {}
        for threads in (1, torch.get_num_threads()):
            torch.set_num_threads(threads)
            taken[threads] = min(play(1) for _ in range(3))
        torch.set_num_threads(min(taken, key=lambda threads: taken[threads]))
    versions = {"torch": torch.__version__, "threads": str(torch.get_num_threads())}
    print(json.dumps({"ready": True, "versions": versions, "runs": 1}), flush=True)
    for line in sys.stdin:
        before = time.process_time()
        fresh()
        begin = loss()
        seconds = play(int(line))
        told = {"seconds": seconds, "begin": begin, "loss": loss(), "memory": most_memory()}
        print(json.dumps(told | {"cpu": time.process_time() - before}), flush=True)


main()
