"""What strategies are made of: run a race, draw with replacement, take the top, break ties, fill seats, cluster.

**The race.** Client k arrives after E_k / w_k, with E_k a standard exponential. The first d to arrive are d draws
without replacement with probability proportional to w: successive sampling, the law of
``numpy.random.Generator.choice(replace=False, p=w)``. Every function costs O(K), and d may be traced.
"""

from fedpick.sampling.clusters import (
    Groups,
    Merges,
    cosines,
    cut_by_mass,
    cut_by_number,
    directions,
    gather,
    ward,
)
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
from fedpick.sampling.inclusion import inclusion_probabilities, systematic
from fedpick.sampling.ranks import fill_unknown, nth_smallest, portion, size_bound
from fedpick.sampling.seats import in_turn, seat, seat_by_size, shares, top_k, top_k_mask, weighted
from fedpick.sampling.strata import stratified

__all__ = [
    "Groups",
    "Merges",
    "arrivals",
    "cosines",
    "cut_by_mass",
    "cut_by_number",
    "directions",
    "draw",
    "exponentials",
    "fill_unknown",
    "first_k",
    "first_k_mask",
    "gather",
    "in_turn",
    "inclusion_probabilities",
    "integers",
    "nth_smallest",
    "portion",
    "race",
    "seat",
    "seat_by_size",
    "shares",
    "size_bound",
    "stratified",
    "systematic",
    "top_k",
    "top_k_mask",
    "uniform_keys",
    "uniforms",
    "ward",
    "weighted",
]
