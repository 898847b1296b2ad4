"""What the simulator measures for strategies that need it: each field against plain NumPy, and what it costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedpick import Ledger, Report, Selection, pytree, sampling, seat_key, static
from fedpick.ledger import enter
from fedpick.protocol import needs, polled, round_keys
from fedpick.sim import Bernoulli, Devices, Failures, Local, Logistic, Synthetic, simulate
from fedpick.sim.local import train
from fedpick.sim.polls import update_norms
from fedpick.sim.round import Setup, begin, one_round
from fedpick.updates import SKETCH_SEED, head, measure, norm, sketch

K, M = 8, 3


@pytree
class Diary:
    """Takes the clients in turn and keeps all that it is told: the last facts, in its state, by what they are."""

    m: int = static(default=M)
    needs: frozenset[str] = static(default=frozenset())
    poll: str = static(default="none")
    skips_poll: bool = static(default=False)
    sketch_size: int = static(default=4)
    classes: int = static(default=10)

    def init(self, num_clients):
        shapes = {"sketch": (self.m, self.sketch_size), "head": (self.m, self.classes), "polled": (num_clients,)}
        names = {"loss", *(self.needs & {"polled", "duration", "norm", "square_loss", "sketch", "head"})}
        return jnp.int32(0), {name: jnp.zeros(shapes.get(name, (self.m,))) for name in sorted(names)}

    def propose(self, key, state, clients):
        return clients.available

    def select(self, key, state, clients, candidates, losses):
        who = (state[0] + jnp.arange(self.m, dtype=jnp.int32)) % clients.size.shape[0]
        silent = jnp.isnan(losses[who]) & (self.poll != "none") & ~jnp.asarray(self.skips_poll)
        return sampling.seat(who, candidates[who] & ~silent)

    def observe(self, state, selection, report):
        return state[0] + self.m, {name: getattr(report, name) for name in state[1]}


@pytest.fixture(scope="module")
def federation():
    return Synthetic(K=K, seed=3).federation()


def setup(federation, selector, **options):
    return Setup(federation, Logistic().build(federation), selector, Local(tau=3, b=4, eta=0.1), **options)


def played(federation, selector, rounds=2, **options):
    own = setup(federation, selector, **options)
    progress = begin(own, own.model.init(jax.random.key(0)))
    step = jax.jit(lambda progress, t: one_round(own, 5, progress, t))
    for t in range(rounds):
        before, (progress, record) = progress, step(progress, t)
    return own, before, progress, record


EVERYTHING = frozenset({"polled", "duration", "norm", "square_loss", "sketch", "head"})


@pytest.mark.no_cover
def test_every_field_is_what_numpy_makes_of_the_seats_trained_alone(federation):
    own, before, after, record = played(federation, Diary(needs=EVERYTHING, poll="full"), devices=Devices(speed=50.0))
    told, key = after.selector[1], round_keys(5, 1).train
    clients = np.asarray(record.clients)
    assert (clients >= 0).all()
    for seat, client in enumerate(clients):
        own_key = seat_key(key, seat, int(client))
        alone = train(
            federation, own.model, own.local, params=before.params, client=jnp.int32(client), key=own_key,
            t=jnp.int32(1), squares=True,
        )  # fmt: skip
        update = [
            np.asarray(new - old) for new, old in zip(*map(jax.tree.leaves, (alone.params, before.params)), strict=True)
        ]
        flat = np.concatenate([part.ravel() for part in update])
        np.testing.assert_allclose(told["norm"][seat], np.linalg.norm(flat), rtol=1e-5)
        np.testing.assert_allclose(told["head"][seat], alone.params["b"] - before.params["b"], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(told["loss"][seat], alone.loss, rtol=1e-5)
        rng = np.random.Generator(np.random.PCG64(SKETCH_SEED))
        order = rng.permutation(flat.size)
        sign = rng.integers(0, 2, flat.size, np.int8) * 2 - 1
        expected = np.zeros(4)
        np.add.at(expected, np.arange(flat.size) % 4, flat[order] * sign)
        np.testing.assert_allclose(told["sketch"][seat], expected, rtol=1e-4, atol=1e-5)
        assert told["square_loss"][seat] >= alone.loss**2 * (1 - 1e-5), "the mean of squares is not below the square"
    samples = np.asarray(own.local.samples(federation.count))[clients]
    np.testing.assert_allclose(told["duration"], own.devices.train_seconds(jnp.asarray(samples), 4 * 610)[:M])
    assert np.isfinite(told["polled"]).all()
    assert told["polled"].shape == (K,)


def test_square_loss_is_the_mean_over_the_samples_of_each_step(federation):
    k = int(jnp.argmin(federation.count))
    start, count = int(federation.start[k]), int(federation.count[k])
    model, local = Logistic().build(federation), Local(tau=2, b=count, eta=0.0)
    w = {"w": jnp.full((60, 10), 0.01), "b": jnp.arange(10.0)}
    seat = {"params": w, "client": jnp.int32(k), "key": jax.random.key(0), "t": jnp.int32(0)}
    data = federation.x[start : start + count], federation.y[start : start + count]
    losses = np.asarray(model.losses(w, *data, None))
    squares = train(federation, model, local, **seat, squares=True).square_loss
    np.testing.assert_allclose(squares, (losses**2).mean(), rtol=1e-5)
    assert train(federation, model, local, **seat).square_loss is None


def test_seats_that_do_not_come_back_report_nan_everywhere(federation):
    _, _, after, record = played(federation, Diary(needs=EVERYTHING - {"polled"}), failures=Failures(0.6), rounds=4)
    lost = np.asarray(record.clients) < 0
    assert lost.any()
    assert not lost.all()
    for name, values in after.selector[1].items():
        gone = np.isnan(np.asarray(values)).reshape(M, -1)
        np.testing.assert_array_equal(gone.all(axis=1), lost, name)
        np.testing.assert_array_equal(gone.any(axis=1), lost, name)


def test_facts_of_the_clients(federation):
    seen = {}

    @pytree
    class Witness(Diary):
        def propose(self, key, state, clients):
            seen["clients"] = clients
            return clients.available

    facts = frozenset({"expected_duration", "upload_duration", "leaving"})
    own = setup(federation, Witness(needs=facts), devices=Devices.lognormal(K), availability=Bernoulli(0.5))
    progress = begin(own, own.model.init(jax.random.key(0)))
    one_round(own, 5, progress, 0)
    here, leaving = seen["clients"].available, seen["clients"].leaving
    one_round(own, 5, progress, 1)
    np.testing.assert_array_equal(leaving, ~np.asarray(seen["clients"].available))
    assert bool((here & leaving).any())
    samples = own.local.samples(federation.count)
    np.testing.assert_allclose(seen["clients"].expected_duration, own.devices.train_seconds(samples, 4 * 610))
    assert bool((seen["clients"].upload_duration < seen["clients"].expected_duration).all())


def test_a_poll_by_training_gives_the_norms_of_the_updates_that_are_then_sent(federation):
    own, before, after, record = played(federation, Diary(needs=frozenset({"norm", "polled"}), poll="norm"))
    told = after.selector[1]
    np.testing.assert_allclose(told["norm"], np.asarray(told["polled"])[np.asarray(record.clients)], rtol=1e-4)
    asked = jnp.arange(K) == 2
    alone = update_norms(
        federation, own.model, own.local, params=before.params, asked=asked, key=round_keys(5, 1).train, t=jnp.int32(1)
    )
    assert np.isnan(np.asarray(alone)[~np.asarray(asked)]).all()
    np.testing.assert_allclose(alone[2], told["polled"][2], rtol=1e-5)
    assert int(record.polled) == K
    assert int(record.poll_samples) == 0
    assert int(record.train_samples) == int(own.local.samples(federation.count).sum()), "all candidates train, once"


def test_a_candidate_that_trains_beyond_the_deadline_does_not_answer(federation):
    devices = Devices(speed=np.where(np.arange(K) == 1, 0.01, 1e6).astype(np.float32), deadline=10.0)
    _, _, after, record = played(federation, Diary(needs=frozenset({"polled"}), poll="norm"), devices=devices, rounds=1)
    assert np.isnan(np.asarray(after.selector[1]["polled"])).tolist() == [k == 1 for k in range(K)]
    assert 10.0 < float(record.seconds) < 11.0, "the server waits for the poll until the deadline"


def test_no_poll_where_it_would_decide_nothing(federation):
    selector = Diary(m=K, poll="full", skips_poll=True)
    assert not polled(selector, jnp.ones(K, bool)).any()
    assert polled(Diary(poll="full"), jnp.ones(K, bool)).all()
    assert int(played(federation, selector, rounds=1)[3].polled) == 0


def test_a_seat_without_a_poll_trains_as_any_other_where_a_poll_would_be_training(federation):
    local, options = Local(tau=2, b=2, eta=0.1), {"rounds": 3, "seeds": 1, "devices": Devices.lognormal(K)}
    unasked, plain = (
        simulate(federation, Logistic(), selector, local, **options)
        for selector in (Diary(m=K, poll="norm", skips_poll=True), Diary(m=K))
    )
    assert not unasked.records["polled"].any()
    np.testing.assert_array_equal(unasked.metrics["loss"], plain.metrics["loss"])
    for name, spent in plain.costs.items():
        np.testing.assert_array_equal(unasked.costs[name], spent, err_msg=name)


def test_traffic_counts_what_a_field_costs(federation):
    options = {"rounds": 2, "seeds": 1}
    plain, squares, trains = (
        simulate(federation, Logistic(), selector, Local(tau=1, b=2, eta=0.1), **options).costs
        for selector in (Diary(), Diary(needs=frozenset({"square_loss", "norm"})), Diary(poll="norm"))
    )
    w = 4 * 610
    assert plain["bytes_up"].tolist() == [[M * (w + 4)] * 2]
    assert plain["bytes_down"].tolist() == [[M * w] * 2]
    assert squares["bytes_up"].tolist() == [[M * (w + 8)] * 2], "a second scalar; norms cost nothing"
    assert trains["bytes_down"].tolist() == [[K * w] * 2], "who was polled by training has the model"
    assert trains["bytes_up"].tolist() == [[K * 4 + M * (w + 4)] * 2]


def test_a_field_that_is_not_needed_is_not_measured(federation):
    own = setup(federation, Diary())
    progress = begin(own, own.model.init(jax.random.key(0)))
    with_norm = setup(federation, Diary(needs=frozenset({"norm"})))
    texts = [
        str(jax.make_jaxpr(lambda p, own=own: one_round(own, 5, p, 0))(begin(own, progress.params)))
        for own in (own, with_norm)
    ]
    assert "sqrt" not in texts[0]
    assert "sqrt" in texts[1]


def test_wrong_needs_and_missing_facts_are_named(federation):
    with pytest.raises(ValueError, match=r"Diary: needs must be among .*, got 'luck'"):
        needs(Diary(needs=frozenset({"luck"})))
    with pytest.raises(ValueError, match="Diary: classes must be 10, the labels of the data, got 7"):
        played(federation, Diary(needs=frozenset({"head"}), classes=7))
    with pytest.raises(ValueError, match=r"one array of shape \(2,\), its output bias, got shapes \(2, 2\)"):
        head([jnp.zeros((2, 2))], classes=2)
    with pytest.raises(
        ValueError, match=r"its output bias; another layer must have another width, got shapes \(2,\), \("
    ):
        head([jnp.zeros(2), jnp.zeros(2)], classes=2)


def test_the_head_is_the_bias_of_the_outputs_wherever_its_name_is_among_the_others():
    update = [jnp.zeros((4, 3)), jnp.array([1.0, 2.0, 3.0]), jnp.zeros((4, 16)), jnp.zeros(16)]  # as of a CharLSTM
    np.testing.assert_array_equal(head(update, classes=3), [1, 2, 3])
    diary = Diary(needs=frozenset({"head"}), classes=16)
    with pytest.raises(ValueError, match="Diary: classes must be 3, the labels of the data, got 16"):
        measure(diary, update, labels=3)


def test_sketches_keep_inner_products_on_average():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5000)).astype(np.float32)
    y += x
    errors = [
        float(sketch([jnp.asarray(x * s)], 256) @ sketch([jnp.asarray(y * s)], 256)) / float(x @ y) - 1
        for s in np.sign(rng.normal(size=(40, 5000))).astype(np.float32)
    ]  # other signs of the projection
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(40)
    assert np.std(errors) < 0.2
    assert float(norm([jnp.asarray(x)])) == pytest.approx(float(np.linalg.norm(x)), rel=1e-5)
    assert set(measure(Diary(needs=frozenset({"norm", "sketch"})), [jnp.asarray(x)])) == {"norm", "sketch"}


def test_a_table_of_what_clients_last_said():
    selection = Selection(jnp.array([2, 0, 2, -1]), jnp.array([0.25, 0.25, 0.25, 0.0]))
    rows = jnp.array([[1.0, 2.0], [jnp.nan, 5.0], [3.0, 4.0], [9.0, 9.0]])
    after = enter(jnp.full((3, 2), 7.0), selection, rows)
    np.testing.assert_array_equal(after, [[7, 7], [7, 7], [2, 3]])
    ledger = Ledger.init(3).observe(selection, Report(rows[:, 0]))
    np.testing.assert_array_equal(enter(jnp.full(3, jnp.nan), selection, rows[:, 0]), ledger.loss)
