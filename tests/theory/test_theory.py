"""The theory against enumeration, Monte-Carlo, closed forms, and federations that are really played."""

import dataclasses
import itertools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from fedpick import (
    AFL,
    Full,
    PowerOfChoice,
    Private,
    Rand,
    Selection,
    Shrinking,
    Uniform,
    pytree,
    static,
    strategy,
)
from fedpick.cli import app
from fedpick.registry import fitting_strategy
from fedpick.sim import Local, Logistic, Quadratic, Synthetic, quadratic_optimum, simulate
from fedpick.theory import (
    Constants,
    Skews,
    averaging_bound,
    averaging_step,
    curvature,
    decaying_bound,
    decaying_step,
    expected_seats,
    fedavg_trajectory,
    federation_problem,
    fixed_bound,
    grid,
    highest_loss_gap,
    logistic_problem,
    mean_weights,
    noise,
    numerical_problem,
    quadratic_problem,
    random_points,
    skew,
    skew_trace,
    skews,
    skews_along,
    solution_bias,
    two_client_gap,
    two_clients,
)
from fedpick.theory.order_statistics import exact_weights
from fedpick.theory.selection_probability import monte_carlo_weights


def random_quadratic(seed, K=6, v=3, spread=3.0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(K, v, v))
    H = roots @ roots.transpose(0, 2, 1) / v + rng.uniform(0.3, 1.0) * np.eye(v)
    return quadratic_problem(rng.dirichlet(np.full(K, 2.0)) + 0.02, H, spread * rng.normal(size=(K, v)))


def random_logistic(seed, K=5, dim=3, classes=3, each=20):
    rng = np.random.default_rng(seed)
    client = np.sort(np.concatenate([np.arange(K), rng.choice(K, K * each - K, p=rng.dirichlet(np.full(K, 2.0)))]))
    x = rng.normal(size=(len(client), dim)) + rng.normal(size=(K, dim))[client]
    y = np.argmax(x @ rng.normal(size=(dim, classes)) + 2 * rng.normal(size=(K, classes))[client], axis=1)
    return logistic_problem(x, y, client, ridge=rng.uniform(0.05, 0.5), classes=classes)


def paper_quadratic(K=30, seed=0):
    federation = Quadratic(K=K, seed=seed).federation()
    return federation_problem(federation), federation


# Who is selected


@pytest.mark.parametrize(("K", "m", "d"), [(2, 1, 2), (4, 1, 2), (5, 2, 3), (6, 2, 2), (6, 3, 5), (7, 1, 4), (6, 2, 6)])
@pytest.mark.parametrize("tied", [False, True])
def test_order_statistics_agree_with_every_draw_enumerated(K, m, d, tied):
    rng = np.random.default_rng(K * 100 + m * 10 + d)
    for _ in range(3):
        share = rng.dirichlet(np.full(K, 0.5)) + 1e-4
        losses = rng.integers(0, 3, K).astype(float) if tied else rng.normal(size=K)
        exact = expected_seats(PowerOfChoice(m=m, d=d), share, losses, method="exact")
        listed = expected_seats(PowerOfChoice(m=m, d=d), share, losses, method="enumeration")
        np.testing.assert_allclose(exact.weight, listed.weight, atol=1e-9)
        assert exact.error.max() < 1e-8
        assert abs(exact.weight.sum() - 1) < 1e-9


def test_a_share_too_small_for_the_integral_is_played_or_enumerated():
    share, losses = [1.0, 1e-12, 1e-12, 1e-12], [4.0, 1.0, 2.0, 3.0]
    selector = PowerOfChoice(m=1, d=2)
    assert expected_seats(selector, share, losses, draws=100).method == "Monte-Carlo, 100 draws"
    assert expected_seats(selector, share, losses, method="enumeration").weight.round(9).tolist() == [1, 0, 0, 0]
    with pytest.raises(ValueError, match="share must be at least 1e-08 of the whole for the exact method"):
        expected_seats(selector, share, losses, method="exact")


@pytest.mark.parametrize(("name", "what"), [("oort", "expected_duration"), ("ocs", "norms")])
def test_a_strategy_that_needs_durations_or_norms_has_no_expected_seats(name, what):
    with pytest.raises(
        ValueError, match=rf"need no facts of the clients but their sizes and losses, got .*needs {what}$"
    ):
        expected_seats(strategy(name, m=2), [0.4, 0.3, 0.2, 0.1], [0.5, 2, 1, 3], method="monte-carlo")


def test_many_clients_with_a_few_ties_agree_with_monte_carlo():
    rng = np.random.default_rng(1)
    share, losses = rng.uniform(0.5, 1, 60), rng.integers(0, 25, 60).astype(float)
    exact = expected_seats(PowerOfChoice(m=4, d=12), share, losses, method="exact")
    played = expected_seats(PowerOfChoice(m=4, d=12), share, losses, method="monte-carlo", draws=20_000)
    assert abs(exact.weight.sum() - 1) < 1e-8
    assert (np.abs(exact.weight - played.weight) < 4.5 * np.maximum(played.error, 1 / 20_000)).all()


def test_a_share_of_a_millionth_and_of_nearly_all_do_not_spoil_the_integral():
    share = np.array([1e-6, 1e-5, 1e-3, 0.9, 0.05, 0.02, 0.02])
    losses = np.array([7.0, 1.0, 6.0, 2.0, 5.0, 3.0, 4.0])
    for d in range(2, 7):
        exact = expected_seats(PowerOfChoice(m=2, d=d), share, losses, method="exact")
        listed = expected_seats(PowerOfChoice(m=2, d=d), share, losses, method="enumeration")
        np.testing.assert_allclose(exact.weight, listed.weight, atol=1e-8)


def test_a_hundred_clients_are_exact_too():
    rng = np.random.default_rng(0)
    share = rng.uniform(size=100) ** (1 / 3)
    losses = rng.normal(size=100)
    exact = expected_seats(PowerOfChoice(m=10, d=30), share, losses, method="exact")
    played = expected_seats(PowerOfChoice(m=10, d=30), share, losses, method="monte-carlo", draws=20_000)
    assert abs(exact.weight.sum() - 1) < 1e-9
    assert (np.abs(exact.weight - played.weight) < 4.5 * played.error + 1e-5).all()


def exact_and_monte_carlo_agree(data):
    K, m = data.draw(st.sampled_from([(3, 1), (6, 2), (8, 3)]), label="K, m")
    d = data.draw(st.integers(m, K), label="d")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="numbers"))
    share, gap = rng.dirichlet(np.full(K, 1.0)) + 0.01, rng.exponential(size=K)
    losses = rng.integers(0, 3, K).astype(float) if rng.random() < 0.2 else rng.normal(size=K)
    weight, error = exact_weights(share / share.sum(), losses[None], m, d)
    draws = 2_000
    selector = PowerOfChoice(m=m, d=jnp.int32(d))
    seen, spread = monte_carlo_weights(selector, share / share.sum(), losses[None], draws=draws, seed=1, gap=gap)
    # What happens less often than once in all draws has no spread that one could see.
    sure = 4 * max(spread[0], gap.max() / draws) + error[0] @ gap
    assert abs(weight[0] @ gap - seen[0] @ gap) < sure


@settings(max_examples=100)
@given(data=st.data())
def test_exact_and_monte_carlo_agree(data):
    exact_and_monte_carlo_agree(data)


@pytest.mark.slow
@settings(max_examples=1000)
@given(data=st.data())
def test_exact_and_monte_carlo_agree_in_a_thousand_cases(data):
    exact_and_monte_carlo_agree(data)


def test_the_unbiased_strategies_select_by_share_exactly():
    share, losses = np.array([0.5, 0.3, 0.2]), np.array([1.0, 5.0, 2.0])
    for selector in (Rand(m=2), Uniform(m=2), Full()):
        assert expected_seats(selector, share, losses).weight == pytest.approx(share, abs=1e-12)
        played = expected_seats(selector, share, losses, method="monte-carlo", draws=4_000)
        assert (np.abs(played.weight - share) < 4.5 * played.error + 1e-6).all()


def test_d_equal_to_m_is_successive_sampling_whatever_the_losses():
    share = np.array([0.4, 0.3, 0.2, 0.1])
    included = np.zeros(4)
    for first, second in itertools.permutations(range(4), 2):
        included[[first, second]] += share[first] * share[second] / (1 - share[first])
    for losses in (np.arange(4.0), -np.arange(4.0), np.zeros(4)):
        found = expected_seats(PowerOfChoice(m=2, d=2), share, losses).weight
        np.testing.assert_allclose(found, included / 2, atol=1e-9)
    played = expected_seats(Rand(m=2, replace=False), share, np.zeros(4), method="monte-carlo", draws=20_000)
    assert (np.abs(played.weight - included / 2) < 4.5 * played.error).all()


def test_a_strategy_without_a_known_law_is_played_and_exact_says_so():
    share, losses = np.array([0.5, 0.3, 0.2]), np.array([1.0, 5.0, 2.0])
    for selector in (AFL(m=2), PowerOfChoice(m=1, d=2, loss="stale"), PowerOfChoice(m=1, d=Shrinking(rounds=20))):
        assert expected_seats(selector, share, losses, draws=500).method == "Monte-Carlo, 500 draws"
        with pytest.raises(ValueError, match="selector must have a known law for method 'exact'"):
            expected_seats(selector, share, losses, method="exact")


def test_clients_that_disguise_their_losses_do_so_here_too():
    lie = 1 / (1 + np.exp(0.5))  # above and below the first threshold, 1; a tie is decided by chance
    selector = Private(PowerOfChoice(m=1, d=2), epsilon=0.5)
    found = expected_seats(selector, [0.5, 0.5], [3.0, 0.4])
    assert (np.abs(found.weight - [1 - lie, lie]) < 4.5 * found.error).all()

    @pytree
    class Believer:
        """The seat of a client that said 7, else of the first."""

        m: int = static(default=1)
        poll = "none"

        def init(self, num_clients):
            return jnp.float32(0)

        def propose(self, key, state, clients):
            return clients.available

        def select(self, key, state, clients, candidates, losses):
            return Selection(jnp.where(state == 7, 1, 0)[None].astype(jnp.int32), jnp.ones(1, jnp.float32))

        def observe(self, state, selection, report):
            return report.loss[0]

        def disguise(self, key, state, losses, clients):
            return jnp.full_like(losses, 7)

    path = fedavg_trajectory(two_clients(1.0, 3.0), Believer(), lambda t: 0.5 + 0 * t, tau=4, rounds=9, start=[0.0])
    assert abs(path.w[0, -1, 0] + 3) < 0.01, "the second client has trained from the second round on"


# Skew


def test_rho_is_1_for_rand_at_any_w_and_any_other_w():
    rng = np.random.default_rng(0)
    for seed in range(5):
        problem = random_quadratic(seed)
        for selector in (Rand(m=2), Uniform(m=2)):
            assert (
                abs(skew(selector, problem, rng.normal(size=3), at=rng.normal(size=3), method="exact").value - 1) < 1e-6
            )
        found = skews(Rand(m=2), problem, random_points(problem, 50, 10.0), refine=1)
        assert abs(found.rho_bar - 1) < 1e-6
        assert abs(found.rho_tilde - 1) < 1e-6


@settings(max_examples=100)
@given(seed=st.integers(0, 2**32 - 1), K=st.integers(2, 8), m=st.integers(1, 3))
def test_rho_never_falls_as_d_grows_where_all_local_optima_are_equal(seed, K, m):
    m = min(m, K)
    rng = np.random.default_rng(seed)
    share, losses = rng.dirichlet(np.ones(K)) + 0.01, rng.exponential(size=(1, K))
    share /= share.sum()
    rho = [float(exact_weights(share, losses, m, d)[0][0] @ losses[0]) for d in range(m, K + 1)]
    assert (np.diff(rho) > -1e-8).all()


def test_rho_can_fall_as_d_grows_where_local_optima_differ():
    # Client 0 has the higher loss and is nearly at its own optimum: choosing it more often looks at smaller gaps.
    share, losses, lowest = np.array([0.5, 0.5]), np.array([10.0, 1.0]), np.array([9.9, 0.0])
    gap = losses - lowest
    rho = [exact_weights(share, losses[None], 1, d)[0][0] @ gap / (share @ gap) for d in (1, 2)]
    assert rho == pytest.approx([1.0, 0.1 / 0.55])


def test_a_ratio_without_a_lower_bound_is_infinite_and_of_none_at_all_is_1():
    assert Skews(0.0, 1.5, 3, "exact").ratio == np.inf
    assert Skews(0.0, 0.0, 3, "exact").ratio == 1.0
    assert Skews(0.5, 1.5, 3, "exact").ratio == 3.0


@pytest.mark.parametrize(("K", "m", "ds"), [(30, 3, (6, 9, 15, 30)), (100, 10, (15, 30, 100))])
def test_both_skews_grow_with_d_on_the_paper_s_quadratic_problem_and_grid(K, m, ds):
    problem, _ = paper_quadratic(K)
    points = grid(-150, 150, per_axis=3, v=5)
    found = [skews(PowerOfChoice(m=m, d=d), problem, points, pairs="same") for d in ds]
    assert (np.diff([1.0, *(one.rho_bar for one in found)]) > 0).all()
    assert (np.diff([1.0, *(one.ratio for one in found)]) > 0).all()
    assert {one.points for one in found} == {len(points) + 1}
    if K == 100:  # "for d = 15 and K = 100, rho_tilde / rho_bar of pow-d and rand are approximately identical"
        assert found[0].ratio < 1.2


def test_a_search_that_goes_on_from_the_grid_finds_a_lower_rho_bar_and_a_higher_ratio():
    problem, _ = paper_quadratic()
    points = grid(-150, 150, per_axis=3, v=5)
    coarse, fine = (skews(PowerOfChoice(m=3, d=6), problem, points, pairs="same", refine=n) for n in (0, 1))
    assert (round(coarse.rho_bar, 2), round(coarse.ratio, 2)) == (1.34, 1.39)  # the tables of docs/theory.md
    assert (round(fine.rho_bar, 2), round(fine.ratio, 2)) == (1.15, 1.61)


def test_a_search_over_all_pairs_that_goes_on_finds_a_rho_bar_below_1():
    problem, _ = paper_quadratic()
    points = grid(-150, 150, per_axis=2, v=5)
    coarse = skews(PowerOfChoice(m=3, d=30), problem, points)
    fine = skews(PowerOfChoice(m=3, d=30), problem, points, refine=2)
    assert fine.rho_bar < coarse.rho_bar < 1
    assert fine.rho_tilde >= coarse.rho_tilde
    assert fine.points > coarse.points


def test_where_all_clients_agree_no_bias_can_stay():
    problem = quadratic_problem([0.5, 0.3, 0.2], h=[1.0, 2.0, 4.0], e=[[3.0], [6.0], [12.0]])
    assert problem.gamma == 0
    found = skews(PowerOfChoice(m=1, d=2), problem, [[1.0], [7.0]], refine=1)
    assert found.ratio == 1
    assert found.rho_bar > 1
    with pytest.raises(ValueError, match=r"must be above rounding errors, .* at every point"):
        skews(PowerOfChoice(m=1, d=2), problem, [[3.0]])


def test_monte_carlo_skews_agree_with_exact_ones():
    problem, _ = paper_quadratic()
    points = random_points(problem, 20, 100.0)
    exact = mean_weights(PowerOfChoice(m=3, d=9), problem, points).weight
    played = mean_weights(PowerOfChoice(m=3, d=9), problem, points, method="monte-carlo", draws=5_000)
    assert played.method == "Monte-Carlo, 5000 draws"
    assert np.abs(exact - played.weight).max() < 0.02


# Problems


def test_the_quadratic_problem_has_the_optimum_of_the_simulator_s():
    problem, federation = paper_quadratic()
    best, lowest = quadratic_optimum(federation)
    np.testing.assert_allclose(problem.optimum, best, rtol=1e-6)
    assert problem.gamma == pytest.approx(lowest, rel=1e-6)


def test_the_numerical_optima_are_those_of_the_closed_form():
    closed = random_quadratic(3)
    found = numerical_problem(closed.share, lambda w: closed.formula(closed.data, w), np.ones(3))
    np.testing.assert_allclose(found.optimum, closed.optimum, atol=1e-8)
    np.testing.assert_allclose(found.lowest, 0, atol=1e-12)
    assert found.gamma == pytest.approx(closed.gamma)
    assert found.residual < 1e-8
    assert (found.mu, found.L) == (pytest.approx(closed.mu, rel=1e-4), pytest.approx(closed.L, rel=1e-4))


@pytest.mark.slow
def test_the_constants_of_the_logistic_problem_hold_everywhere_looked_at():
    problem = random_logistic(0)
    assert problem.residual < 1e-8
    least, most = curvature(lambda w: problem.formula(problem.data, w), random_points(problem, 5, 5.0))
    assert problem.mu <= least * (1 + 1e-6)
    assert most <= problem.L
    values = problem.values(random_points(problem, 50, 5.0))
    assert (values >= problem.lowest - 1e-12).all()
    assert (values @ problem.share >= problem.share @ problem.values(problem.optimum) - 1e-12).all()


def test_beyond_small_dimensions_the_curvature_is_found_by_power_iteration():
    h = np.concatenate([[1.0], np.linspace(3, 4, 300), [6.0]])
    least, most = curvature(lambda w: jnp.stack([jnp.sum(h * w**2) / 2, jnp.sum(w**2)]), np.zeros((1, 302)))
    assert least == pytest.approx(1.0, rel=1e-4)
    assert most == pytest.approx(6.0, rel=1e-4)


def test_noise_is_that_of_mini_batches_drawn():
    rng = np.random.default_rng(0)
    x, client = rng.normal(size=(12, 2)), np.arange(12) // 4
    sigma, G = noise(lambda w: 0.5 * jnp.sum((w[None] - x) ** 2, axis=1), client, np.zeros((1, 2)), b=2)
    drawn = [(-x[k * 4 + rng.integers(0, 4, (4000, 2))]).mean(axis=1) for k in range(3)]
    spread = max(((g - g.mean(axis=0)) ** 2).sum(axis=1).mean() for g in drawn)
    assert sigma**2 == pytest.approx(spread, rel=0.1)
    assert pytest.approx(max((g**2).sum(axis=1).mean() for g in drawn), rel=0.1) == G**2


# Bounds


def constants_of(problem, selector, path, tau, sigma, start):
    found = skews_along(selector, problem, path._replace(w=path.w[:6], between=path.between[:6]))
    skew = {"rho_bar": found.rho_bar, "rho_tilde": found.rho_tilde}
    return Constants.of(problem, start, tau=tau, m=selector.m, sigma=sigma, G=path.G, **skew)


def looseness(problem, selector, kind, seed, runs=48, rounds=60, tau=3, sigma=0.5):
    """The bound over the measured mean error, by round; below 1 the theorem would be wrong."""
    v = len(problem.optimum)
    start = problem.optimum + 3 * np.random.default_rng(seed).normal(size=v)
    known = Constants.of(problem, start, tau=tau, m=selector.m)
    most_skew = 1 / problem.share.min()
    eta = min(1 / (4 * problem.L), 1 / (2 * problem.mu * (1 + 3 * most_skew / 8)))
    steps = {
        "decaying": lambda t: decaying_step(known, t),
        "fixed": lambda t: eta + 0 * t,
        "averaging": lambda t: averaging_step(known, t),
    }
    path = fedavg_trajectory(
        problem, selector, steps[kind], tau=tau, rounds=rounds, start=start, sigma=sigma, runs=runs, seed=seed
    )
    c = constants_of(problem, selector, path, tau, sigma, start)
    bounds = {
        "decaying": lambda T: decaying_bound(c, T),
        "fixed": lambda T: fixed_bound(c, T, eta),
        "averaging": lambda T: averaging_bound(c, T),
    }
    total = bounds[kind](path.iterations).total
    error = problem.excess(path.w.reshape(-1, v)).reshape(runs, -1).mean(axis=0)
    assert (error <= total).all(), (
        f"{kind} bound broken at T = {path.iterations[error > total][:5]} by {selector}: {c}, share {problem.share}, "
        f"optimum {problem.optimum}, start {start}, data {problem.data}, error {error}, bound {total}"
    )
    return total / error


CASES = [
    (Rand(m=2), "decaying"),
    (PowerOfChoice(m=2, d=jnp.int32(3)), "decaying"),
    (PowerOfChoice(m=2, d=jnp.int32(5)), "decaying"),
    (Rand(m=2), "fixed"),
    (PowerOfChoice(m=2, d=jnp.int32(4)), "fixed"),
    (Uniform(m=2), "averaging"),
    (PowerOfChoice(m=2, d=jnp.int32(4)), "averaging"),
]


@pytest.mark.no_cover
@pytest.mark.parametrize("number", [2, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [random_quadratic, pytest.param(random_logistic, marks=pytest.mark.slow)])
def test_every_bound_holds_at_every_round_of_so_many_problems(make, number, record_property):
    loose = {f"{kind} {type(selector).__name__}": [] for selector, kind in CASES}
    for seed in range(number):
        problem = make(seed)
        for selector, kind in CASES:
            loose[f"{kind} {type(selector).__name__}"].append(looseness(problem, selector, kind, seed).min())
    for name, ratios in loose.items():
        record_property(name, f"bound / error: at least {min(ratios):.3g}, median {np.median(ratios):.3g}")
        assert min(ratios) >= 1


@pytest.mark.slow
def test_the_error_falls_like_1_over_t_for_rand_and_flattens_below_the_bias_for_pow_d():
    problem = two_clients(a=1.0, b=3.0, share=(0.8, 0.2))
    start, sigma, tau, rounds = np.array([4.0]), 1.0, 2, 4_000
    known = Constants.of(problem, start, tau=tau, m=1)
    errors = {}
    for selector in (Rand(m=1), PowerOfChoice(m=1, d=2)):
        path = fedavg_trajectory(
            problem,
            selector,
            lambda t: decaying_step(known, t),
            tau=tau,
            rounds=rounds,
            start=start,
            sigma=sigma,
            runs=100,
        )
        errors[type(selector)] = problem.excess(path.w.reshape(-1, 1)).reshape(100, -1).mean(axis=0)
        last = path
    early, late = slice(90, 110), slice(3_800, 4_000)
    slope = np.log(errors[Rand][late].mean() / errors[Rand][early].mean()) / np.log(3_900 / 100)
    assert -1.3 < slope < -0.7
    floor = errors[PowerOfChoice][late].mean()
    assert floor == pytest.approx(errors[PowerOfChoice][1_900:2_000].mean(), rel=0.2)
    assert floor > 20 * errors[Rand][late].mean()
    c = constants_of(problem, PowerOfChoice(m=1, d=2), last, tau, sigma, start)
    assert floor < decaying_bound(c, 1).bias


def test_weights_that_do_not_sum_to_1_can_break_the_bound_of_the_appendix():
    K = 50
    problem = quadratic_problem([0.9] + [0.1 / 49] * 49, np.ones(K), np.ones((K, 1)))
    known = Constants(
        mu=1.0, L=1.0, sigma=0.0, G=20.0, tau=1, m=1, gamma=0.0, rho_bar=1.0, rho_tilde=1.0, distance=1.0, excess=0.5
    )
    path = fedavg_trajectory(
        problem, Uniform(m=1), lambda t: averaging_step(known, t), tau=1, rounds=40, start=[2.0], runs=2_000
    )
    assert problem.excess(path.w[:, 38]).mean() > 5 * averaging_bound(known, 38).total


def test_for_several_local_steps_the_proof_s_expectation_is_less_than_rho_bar_times_it():
    # (eq4-4-3): E[mean over S of F_k(w_t) - F_k*] = rho (E[F(w_t)] - sum p_k F_k*), as if w_t did not depend on S.
    problem, eta = quadratic_problem([0.5, 0.5], h=[1.0, 1.0], e=[[1.0], [-1.0]]), 0.2
    assert eta < 1 / (4 * problem.L)
    path = fedavg_trajectory(problem, Rand(m=1), lambda t: eta, tau=5, rounds=1, start=[0.0], runs=20)
    right = path.w[:, 1, 0] > 0  # the first client was selected, whose optimum is 1
    assert 0 < right.sum() < 20
    quotients = []
    for t in range(5):
        # Either client with probability 1/2, and the average of one seat is its model.
        models = np.stack([path.between[who, 0, t][0] for who in (right, ~right)])
        gap = problem.values(models) - problem.lowest
        quotients.append(np.trace(gap) / 2 / (gap @ problem.share).mean())
        assert skew(Rand(m=1), problem, w=[0.0], at=models[0]).value == pytest.approx(1)
    assert quotients == pytest.approx([1, 0.6154, 0.3626, 0.2117, 0.1244], abs=1e-4)
    assert skews_along(Rand(m=1), problem, path).rho_bar == pytest.approx(1)


def test_along_a_run_that_arrives_where_all_agree_the_skew_is_still_a_number():
    problem = quadratic_problem([0.5, 0.5], [1.0, 2.0], [[1.0], [2.0]])
    path = fedavg_trajectory(problem, PowerOfChoice(m=1, d=2), lambda t: 0.3, tau=2, rounds=300, start=[3.0])
    found = skews_along(PowerOfChoice(m=1, d=2), problem, path)
    assert found.ratio == 1
    assert found.rho_bar == pytest.approx(4 / 3)  # the client of h = 2 has two thirds of all that is left
    with pytest.raises(ValueError, match="selector must be a strategy without memory"):
        skews_along(AFL(m=1), problem, path)


def test_the_mended_bias_is_the_one_of_the_derivation():
    c = Constants(
        mu=2.0, L=6.0, sigma=1.0, G=5.0, tau=3, m=4, gamma=0.7, rho_bar=1.2, rho_tilde=1.9, distance=2.0, excess=9.0
    )
    B, D, beta = 1 / c.m + c.rho_bar / 2, 2 * c.gamma * (c.rho_tilde - c.rho_bar), c.m / c.mu
    assert averaging_bound(c, 10).bias == pytest.approx(c.L / 2 * D * beta / (beta * c.mu * B - 1))
    start = 4 * c.m * (1 + c.m) * c.L / c.mu
    C = 32 * c.m**2 * (c.m - 1) * c.tau**2 * c.G**2 + c.sigma**2 * c.m + 2 * c.L * (2 + c.m) * c.rho_bar * c.gamma
    psi = beta**2 * C / (beta * c.mu * B - 1) + start * c.distance**2
    assert averaging_bound(c, 10).vanishing == pytest.approx(c.L / 2 * psi / (10 + start))


def test_the_fixed_bound_solves_the_recursion_of_its_proof():
    c = Constants(
        mu=2.0, L=6.0, sigma=1.0, G=5.0, tau=3, m=4, gamma=0.7, rho_bar=1.2, rho_tilde=1.9, distance=2.0, excess=9.0
    )
    eta, B = 0.02, 1 + 3 * c.rho_bar / 8
    C = 32 * c.tau**2 * c.G**2 + c.sigma**2 / c.m + 6 * c.rho_bar * c.L * c.gamma
    delta = 2 / c.mu * c.excess
    for T in range(20):
        assert fixed_bound(c, T, eta).total == pytest.approx(c.L / 2 * delta)
        delta = (1 - eta * c.mu * B) * delta + eta**2 * C + eta * 2 * c.gamma * (c.rho_tilde - c.rho_bar)


@pytest.mark.no_cover
def test_the_trace_of_a_simulation_is_its_running_skew():
    federation = Synthetic(1, 1, K=10, seed=0).federation()
    local = Local(tau=10, b=20, eta=0.05)
    result = simulate(federation, Logistic(), PowerOfChoice(m=2, d=8), local, rounds=40, every=10, seeds=3)
    trace = skew_trace(result)
    assert trace["round"].tolist() == [10, 20, 30, 40]
    gap = result.metrics["client_loss"][:, 1:]
    for run, block in itertools.product(range(3), range(4)):
        chosen = result.records["clients"][run, 10 * block : 10 * block + 10].ravel()
        expected = gap[run, block][chosen].mean() / (result.share @ gap[run, block])
        assert trace["rho"][run, block] == pytest.approx(expected, rel=1e-4)
    assert (trace["lowest"] == np.minimum.accumulate(trace["rho"], axis=1)).all()
    assert trace["relative"][:, 0] == pytest.approx(1)
    assert trace["rho"].mean() > 1.1  # pow-d picks those who are worse off


# The two clients of Figure 1


def test_a_biased_coin_converges_to_the_closed_form():
    a, b, share, selected = 1.0, 3.0, (0.6, 0.4), (0.3, 0.7)
    problem = two_clients(a, b, share)
    coin = dataclasses.replace(problem, share=np.asarray(selected))  # rand by other shares: a coin that is biased
    path = fedavg_trajectory(coin, Rand(m=1), lambda t: 0.002 + 0 * t, tau=1, rounds=6_000, start=[2.0], runs=40)
    end = path.w[:, -1].mean(axis=0)
    assert problem.excess(end) == pytest.approx(two_client_gap(a, b, share=share, selected=selected), rel=0.05)


@pytest.mark.parametrize("share", [(0.5, 0.5), (0.75, 0.25)])
def test_selecting_the_higher_loss_ends_where_both_losses_are_equal(share):
    problem = two_clients(1.0, 3.0, share)
    path = fedavg_trajectory(problem, PowerOfChoice(m=1, d=2), lambda t: 0.01 + 0 * t, tau=1, rounds=2_000, start=[5.0])
    assert path.w[0, -1, 0] == pytest.approx(-1.0, abs=0.05)
    assert problem.excess(path.w[0, -1]) == pytest.approx(highest_loss_gap(1.0, 3.0, share), abs=0.05)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: expected_seats(Rand(m=1), [0.5, 0.0], [1, 2]), "share must be between 1e-30 and 1e30"),
        (lambda: expected_seats(Rand(m=1), [], []), "share must have shape"),
        (lambda: expected_seats("pow-d", [0.5, 0.5], [1, 2]), "selector must be a strategy"),
        (lambda: expected_seats(PowerOfChoice(m=1, d=5), [0.5, 0.5], [1, 2]), "at most K=2, got 5"),
        (lambda: quadratic_problem([1], [[[2.0, 1.0], [0.0, 2.0]]], [[1.0, 1.0]]), "h must be symmetric"),
        (lambda: quadratic_problem([1, 1], [1, 1], [[np.nan], [1.0]]), "e must be finite"),
        (
            lambda: logistic_problem(np.ones((2, 1)), [0, 2], [0, 1], ridge=0.1, classes=2),
            "y must be at least 0 and below",
        ),
        (lambda: logistic_problem(np.ones((2, 1)), [0, -1], [0, 1], ridge=0.1), "y must be at least 0"),
        (lambda: logistic_problem(np.ones((2, 1)), [0, 1], [0, -1], ridge=0.1), "client must be at least 0"),
        (lambda: logistic_problem([[np.nan]], [0], [0], ridge=0.1), "x must be finite"),
        (lambda: numerical_problem([1, 1], lambda w: jnp.stack([w[0], 2 * w[0]]), [0.3]), "must have a minimum"),
        (lambda: numerical_problem([1, 1], lambda w: w[:1] ** 2, [0.3]), "one number for each of K=2 clients"),
        (lambda: numerical_problem([1, 1], lambda w: jnp.stack([w[0] ** 2] * 2), 0.3), "start must have shape"),
        (lambda: numerical_problem([1], lambda w: w**2, [0.3], mu=5.0, L=1.0), "mu must be at least 0 and at most L=1"),
        (lambda: two_clients(1, 1).values([1.0, 2.0]), "w must have shape"),
        (
            lambda: fedavg_trajectory(two_clients(1, 1), Rand(m=1), 0.1, tau=1, rounds=1, start=[1.0]),
            "step must be a function",
        ),
        *(
            (
                lambda name=name: fedavg_trajectory(
                    two_clients(1, 1), fitting_strategy(name, m=1, d=2, rounds=9), abs, tau=1, rounds=1, start=[1.0]
                ),
                f"^fedavg_trajectory: selector must go by sizes and losses alone, got .*, which needs {what}",
            )
            for name, what in (("k-vib", "norm$"), ("ucb-cs", "square_loss$"), ("ocs", "norms$"))
        ),
        (lambda: two_client_gap(1, 3, share=(0.5, 0.5), selected=(0, 0)), "selected must be at least 0, and not both"),
        (
            lambda: fedavg_trajectory(two_clients(1, 1), Rand(m=1), lambda t: 0.1, tau=1, rounds=1, start=1.0),
            "start must have",
        ),
        (lambda: random_points(two_clients(1, 1), 3, np.inf), "spread must be above 0 and at most 1e100"),
        (lambda: skews(Rand(m=1), two_clients(1, 1), [[np.nan]]), "w must be between"),
        (lambda: expected_seats(Rand(m=1), [0.5, 0.5], [1, np.nan]), "losses must be 2 numbers"),
        (lambda: expected_seats(Rand(m=1), [0.5, 0.5], [1, 2], method="magic"), "method must be one of"),
        (
            lambda: expected_seats(PowerOfChoice(m=1, d=9), np.ones(30), np.arange(30.0), method="enumeration"),
            "at most 20000 to be enumerated",
        ),
        (lambda: expected_seats(PowerOfChoice(m=3, d=3), [0.5, 0.5], [1, 2]), "m must be at most K=2, got 3"),
        (
            lambda: expected_seats(PowerOfChoice(m=1, d=jnp.array([1, 2])), [0.5, 0.5], [1, 2]),
            "d must be a single number and at most K=2",
        ),
        (lambda: quadratic_problem([1, 1], [1, -1], [[1.0], [1.0]]), "h must be positive definite"),
        (lambda: quadratic_problem([1, 1], [1, 1, 1], [[1.0], [1.0]]), "h must have shape"),
        (lambda: logistic_problem([[1.0]], [0], [0], ridge=0.0), "ridge must be finite and above 0"),
        (lambda: skews(Rand(m=1), two_clients(1, 1), [1.0]), r"w must have shape \(n, v\)"),
        (lambda: grid(0, 1, per_axis=10, v=9), "points must be at most a million"),
        (
            lambda: Constants(
                mu=1, L=0.5, sigma=0, G=0, tau=1, m=1, gamma=0, rho_bar=1, rho_tilde=1, distance=0, excess=0
            ),
            "L must be finite and at least mu=1",
        ),
        (
            lambda: Constants(
                mu=1, L=1, sigma=0, G=0, tau=1, m=1, gamma=0, rho_bar=1, rho_tilde=0.5, distance=0, excess=0
            ),
            "rho_tilde must be finite and at least rho_bar=1",
        ),
        (
            lambda: fixed_bound(
                Constants(mu=1, L=1, sigma=0, G=0, tau=1, m=1, gamma=0, rho_bar=1, rho_tilde=1, distance=0, excess=0),
                1,
                eta=0.5,
            ),
            "eta must be above 0 and at most",
        ),
        (
            lambda: decaying_bound(
                Constants(mu=1, L=1, sigma=0, G=0, tau=1, m=1, gamma=0, rho_bar=1, rho_tilde=1, distance=0, excess=0),
                -1,
            ),
            "T must be at least 0",
        ),
        *(
            (
                lambda bound=bound, tau=tau: bound(
                    Constants(mu=1.0, L=20.0, tau=tau, m=1, gamma=0.0, distance=1.0, excess=1.0), 10
                ),
                f"^{bound.__name__}: tau must be at most 4 .*L / mu \\+ 1 = {tau - 1}, got {tau}$",
            )
            for bound, tau in ((decaying_bound, 82), (averaging_bound, 162))
        ),
        (lambda: two_client_gap(1, 1, share=(0.5, 0.5), selected=(0.2, 0.3, 0.5)), "selected must be two numbers"),
    ],
)
def test_wrong_arguments_are_one_sentence(wrong, says):
    with pytest.raises(ValueError, match=says):
        wrong()


def test_the_bias_of_the_first_theorem_is_the_solution_bias():
    c = Constants(
        mu=2.0, L=6.0, sigma=1.0, G=5.0, tau=3, m=4, gamma=0.7, rho_bar=1.2, rho_tilde=1.9, distance=2.0, excess=9.0
    )
    assert decaying_bound(c, 10).bias == solution_bias(mu=2.0, L=6.0, gamma=0.7, ratio=1.9 / 1.2)


# The command line


def test_the_command_prints_the_trade_off():
    done = CliRunner().invoke(app, ["theory", "quadratic", "-K", "10", "-m", "2", "-d", "4", "--points", "20"])
    assert done.exit_code == 0
    assert "pow-d, d = 4" in done.output
    assert "rand" in done.output
    assert "21 points w, with w' = w" in done.output


@pytest.mark.parametrize(
    ("problem", "K", "title"), [("logistic", 4, "K = 4"), ("two-clients", 2, "a = 1, b = 3, p = (0.75, 0.25), K = 2")]
)
def test_every_named_problem_has_a_table(problem, K, title):
    done = CliRunner().invoke(app, ["theory", problem, "-K", str(K), "--points", "10", "--pairs", "all"])
    assert done.exit_code == 0
    assert f"{problem}: {title}, m = 1" in done.output
    assert "in all pairs" in done.output


def test_two_clients_are_two():
    done = CliRunner().invoke(app, ["theory", "two-clients", "-K", "4"])
    assert done.exit_code == 1
    assert "-K must be 2 for two-clients, got 4" in done.output


def test_a_wrong_option_is_one_sentence_and_exit_code_1():
    done = CliRunner().invoke(app, ["theory", "quadratic", "-m", "3", "-d", "2"])
    assert done.exit_code == 1
    assert "d must be at least m=3, got 2" in done.output
    assert "Traceback" not in done.output
    done = CliRunner().invoke(app, ["theory", "quadratic", "-K", "5", "-d", "9"])
    assert (done.exit_code, done.output) == (1, "theory: -d must be at most K=5, got 9\n")


def test_a_search_whose_lowest_value_lies_at_infinity_ends():
    problem = two_clients(1.0, 3.0, (0.75, 0.25))
    found = skews(Rand(m=1), problem, random_points(problem, 10, 150.0, seed=0), refine=3)
    assert found.points < 10 + 3 * 300 * 64 * 2
    done = CliRunner().invoke(app, ["theory", "two-clients", "--points", "10", "--refine", "1"])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize("K", [2, 5, 30])
def test_a_skew_of_rounding_errors_is_refused(K):
    """Where all clients agree, it is 0 / 0 at their optimum, whatever the last digits are."""
    rng = np.random.default_rng(0)
    h, w = rng.uniform(1, 20, K), 100 * rng.normal(size=3)
    problem = quadratic_problem(rng.random(K) + 0.1, h, h[:, None] * w)
    assert problem.gamma == 0
    with pytest.raises(ValueError, match=r"skew: F\(w'\) - sum p_k F_k\* must be above rounding errors, 1e-12"):
        skew(PowerOfChoice(m=1, d=2), problem, problem.optimum)
    with pytest.raises(ValueError, match=r"skews: .* at every point"):
        skews(PowerOfChoice(m=1, d=2), problem, np.stack([problem.optimum + 1, problem.optimum + 1e-9]))
    near, far = (skew(PowerOfChoice(m=1, d=2), problem, problem.optimum + away).value for away in (1e-3, 1.0))
    assert near == pytest.approx(far, rel=1e-6)
