"""The schedules of d, against those of the only public code of adapow-d, peng-ju/Power-of-Choice@8c857a2."""

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedpick import Halving, PowerOfChoice, Shrinking, Switch, strategy


def trace(schedule, K, m, times):
    return [int(schedule(jnp.int32(t), K, m)) for t in times]


@pytest.mark.parametrize("rounds", [1, 2, 7, 300, 801])
def test_switch_falls_to_m_at_half_of_the_rounds(rounds):
    """image_classification/main.py and logistic_regression/main.py: ``if rnd == rounds // 2: powd = m``."""
    d, expected = 100, []
    for rnd in range(rounds):
        if rnd == rounds // 2:
            d = 3
        expected.append(d)
    times = sorted({0, rounds // 2 - 1, rounds // 2, rounds - 1} - {-1})
    assert trace(Switch(rounds), 100, 3, times) == [expected[t] for t in times]


def test_halving_has_the_stages_of_the_quadratic_problem():
    """quadratic_sim.ipynb: [K, K//2, K//4, K//8, K//10][min(epoch // 5001, 4)], K = 100, m = K//10."""
    table = [100, 50, 25, 12, 10]
    times = [0, 5000, 5001, 10_001, 10_002, 15_002, 15_003, 20_003, 20_004, 49_999]
    assert trace(Halving(5 * 5001), 100, 10, times) == [table[min(t // 5001, 4)] for t in times]


@given(st.integers(1, 10**6), st.integers(0, 30), st.integers(2, 10**6), st.integers(1, 50))
def test_halving_only_falls_from_all_clients_to_m(rounds, halvings, K, m):
    m = min(m, K)
    found = trace(Halving(rounds, halvings), K, m, sorted({0, 1, rounds // 3, rounds // 2, rounds - 1, 2**31 - 1}))
    assert found[0] == K
    assert found == sorted(found, reverse=True)
    assert found[-1] == m


@given(st.integers(1, 10**6), st.integers(0, 100))
def test_switch_at_any_part(rounds, percent):
    at = percent * rounds // 100
    assert trace(Switch(rounds, percent / 100), 9, 2, [max(at - 1, 0), at]) == [9 if at else 2, 2]


def test_they_are_strategies_by_name():
    assert strategy("adapow-d-switch", m=3, rounds=10) == PowerOfChoice(3, Switch(10))
    assert strategy("adapow-d-halving", m=3, rounds=10) == PowerOfChoice(3, Halving(10))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Switch(0), r"^Switch: rounds must be at least 1 and below 2\*\*31, got 0$"),
        (lambda: Switch(9, 1.5), "^Switch: part must be at least 0 and at most 1, got 1.5$"),
        (lambda: Halving(2**31), r"^Halving: rounds must be at least 1 and below 2\*\*31, got 2147483648$"),
        (lambda: Halving(9, 31), "^Halving: halvings must be at least 0 and at most 30, got 31$"),
        (lambda: Shrinking(5), "^Shrinking: rounds must be at least steps=10, got 5$"),
    ],
)
def test_errors_name_the_parameter_and_the_rule(make, says):
    with pytest.raises(ValueError, match=says):
        make()
