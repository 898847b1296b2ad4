"""What strategies are made of: run a race, draw with replacement, take the top, break ties, fill seats."""

from fedpick.sampling.draws import (
    arrivals,
    draw,
    exponentials,
    first_k,
    first_k_mask,
    integers,
    race,
    uniform_keys,
    uniforms,
)
from fedpick.sampling.seats import seat, shares, top_k, top_k_mask, weighted

__all__ = [
    "arrivals",
    "draw",
    "exponentials",
    "first_k",
    "first_k_mask",
    "integers",
    "race",
    "seat",
    "shares",
    "top_k",
    "top_k_mask",
    "uniform_keys",
    "uniforms",
    "weighted",
]
