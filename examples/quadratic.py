"""Federated averaging on the paper's quadratic problem: which strategy gets there in how many rounds?

    python examples/quadratic.py

K = 30 clients with F_k(w) = h_k/2 |w - e_k/h_k|^2 (the paper's appendix, "Quadratic Model Optimization"), m = 3 seats,
tau = 2 local gradient steps, ten draws. It shows a selector inside a compiled loop over rounds that you write yourself.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import fedpick
from fedpick import Clients, Report, Selector, pick, round_keys

K, V, TAU, ETA, ROUNDS, DRAWS = 30, 5, 2, 2e-5, 15_000, 10
STRATEGIES: dict[str, dict[str, int]] = {
    "rand": {"m": 3},
    "pow-d": {"m": 3, "d": 6},
    "rpow-d": {"m": 3, "d": 6},
    "adapow-d": {"m": 3, "rounds": ROUNDS // 2},
    "afl": {"m": 3},
}


class Problem(NamedTuple):
    """The clients' objectives, their data sizes, and where the model starts."""

    h: Float[Array, " K"]
    e: Float[Array, " K v"]
    size: Float[Array, " K"]
    start: Float[Array, " v"]

    @classmethod
    def draw(cls, seed: int) -> "Problem":
        """The paper's law: h_k ~ U(1, 20), e_k ~ U(0, 100) per entry, p_k in proportion to draws of density 3 x^2."""
        rng = np.random.default_rng(seed)
        h, e, size = rng.uniform(1, 20, K), rng.uniform(0, 100, (K, V)), rng.uniform(size=K) ** (1 / 3)
        return cls(*(jnp.asarray(x, jnp.float32) for x in (h, e, size, rng.normal(0, 100, V))))

    def losses(self, w: Float[Array, " v"]) -> Float[Array, " K"]:
        """F_k(w) of every client."""
        return self.h / 2 * jnp.sum((w - self.e / self.h[:, None]) ** 2, axis=1)

    def gap(self, w: Float[Array, " v"]) -> Float[Array, ""]:
        """F(w) - F*."""
        p = self.size / self.size.sum()
        return p @ self.losses(w) - p @ self.losses((p @ self.e) / (p @ self.h))


def federate(selector: Selector[Any], problem: Problem, seed: Any) -> Any:
    """F(w) - F* after each round of federated averaging."""
    clients = Clients(problem.size, jnp.ones(K, bool))

    def one_round(carry: tuple[Any, Any], t: Any) -> tuple[tuple[Any, Any], Any]:
        w, state = carry
        keys = round_keys(seed, t)
        losses = problem.losses(w)
        selection = pick(selector, keys, state, clients, lambda key, asked: losses).selection
        h, e = problem.h[selection.clients, None], problem.e[selection.clients]
        local = jnp.broadcast_to(w, e.shape)
        for _ in range(TAU):
            local = local - ETA * (h * local - e)
        state = selector.observe(state, selection, Report(losses[selection.clients]))
        w = selection.weights @ local
        return (w, state), problem.gap(w)

    return jax.lax.scan(one_round, (problem.start, selector.init(K)), jnp.arange(ROUNDS, dtype=jnp.int32))[1]


def main() -> None:
    print(f"F(w) - F* on {DRAWS} draws of the paper's quadratic problem: K = {K}, m = 3, {ROUNDS} rounds\n")
    print("strategy   rounds to a hundredth of the start   speed-up over rand   gap at the end")
    seeds = jnp.arange(DRAWS, dtype=jnp.int32)
    problems = jax.tree.map(lambda *draws: jnp.stack(draws), *(Problem.draw(seed) for seed in range(DRAWS)))
    runs = jax.jit(jax.vmap(federate, in_axes=(None, 0, 0)))
    baseline = np.full(DRAWS, np.nan)
    for name, parameters in STRATEGIES.items():
        gaps = np.asarray(runs(fedpick.strategy(name, **parameters), problems, seeds))
        reached = gaps < 0.01 * gaps[:, :1]
        rounds = np.where(reached.any(axis=1), reached.argmax(axis=1), np.inf)
        baseline = rounds if name == "rand" else baseline
        columns = (np.median(rounds), np.median(baseline / rounds), np.median(gaps[:, -1]))
        print("{:10s} {:34.0f} {:20.2f} {:16.4f}".format(name, *columns), flush=True)
    print(
        "\nMedians over the draws. A biased choice is faster, and may stop short of the optimum: the paper's trade-off."
    )


if __name__ == "__main__":
    main()
