"""Code and files of one's own that change while Python runs: what is played is what is there now."""

import importlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from fedpick import Rand
from fedpick.compare import load_report
from fedpick.experiment import Experiment, from_plain, run
from fedpick.sim import Local, Logistic, Quadratic, QuadraticModel, Synthetic, TraceFile, from_apply, simulate
from fedpick.storage import sources_of, sum_of_code, sums_of_files

STRATEGY = """
import jax.numpy as jnp
from fedpick import Ledger, pytree, sampling, static

@pytree
class Ranked:
    m: int = static()
    poll = "none"
    def init(self, K): return Ledger.init(K)
    def propose(self, key, state, clients): return clients.available
    def select(self, key, state, clients, candidates, losses):
        rank = jnp.arange(clients.size.shape[0]).astype(jnp.float32) * {sign}
        return sampling.seat(*sampling.top_k(key, rank, candidates, self.m))
    def observe(self, state, selection, report): return state.observe(selection, report)
"""
PROBLEM = (Quadratic(K=4), QuadraticModel())
LOCAL = Local(tau=1, b=1, eta=1e-4)


def chosen(result):
    return sorted(set(result.records["clients"].ravel().tolist()))


def played(folder, selector, **world):
    """The clients that trained in simulate, and in run."""
    (result,) = run(Experiment(*PROBLEM, selector, LOCAL, rounds=3, **world), folder)
    return chosen(simulate(*PROBLEM, selector, LOCAL, rounds=3, **world)), chosen(result)


def test_an_edited_trace_is_another_one(tmp_path):
    found = []
    for line in ("1,1,0,0", "0,0,1,1"):
        (tmp_path / "t.csv").write_text("a,b,c,d\n" + f"{line}\n" * 3)
        trace = TraceFile(str(tmp_path / "t.csv"))
        found.append(played(tmp_path / "runs", Rand(m=2, replace=False), availability=trace))
    assert found == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def own_module(tmp_path, monkeypatch, text):
    """A module of one's own with a name that no other test has."""
    name = f"own_{abs(hash(str(tmp_path)))}"
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / f"{name}.py").write_text(text)
    return name


def test_an_edited_file_of_an_own_availability_counts(tmp_path, monkeypatch):
    text = """
import numpy as np, jax.numpy as jnp
from fedpick import pytree, static

@pytree
class Mine:
    table: str = static()
    def __call__(self, key, t, K): return jnp.asarray(np.load(self.table))
"""
    module = importlib.import_module(own_module(tmp_path, monkeypatch, text))
    found = []
    for rows in ([1, 1, 0, 0], [0, 0, 1, 1]):
        np.save(tmp_path / "t.npy", np.array(rows, bool))
        mine = module.Mine(str(tmp_path / "t.npy"))
        found.append(played(tmp_path / "runs", Rand(m=2, replace=False), availability=mine))
    assert found == [([0, 1], [0, 1]), ([2, 3], [2, 3])]


def test_an_edited_file_of_own_data_counts(tmp_path, monkeypatch):
    text = """
import numpy as np
from dataclasses import dataclass
from fedpick.sim import Federation

@dataclass(frozen=True)
class Mine:
    table: str
    seed: int = 0
    def federation(self):
        x = np.load(self.table)
        return Federation.from_arrays(x, np.arange(len(x)) % 2, np.arange(len(x)) // 5)
"""
    module = importlib.import_module(own_module(tmp_path, monkeypatch, text))
    for redraw in (False, True):
        losses = []
        for scale in (1, 5):
            np.save(tmp_path / "t.npy", scale * np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32))
            data = module.Mine(str(tmp_path / "t.npy"))
            problem = (data, Logistic(), Rand(m=2), Local(tau=2, b=5, eta=0.5))
            (result,) = run(Experiment(*problem, rounds=2, seeds=(0, 1), redraw=redraw), tmp_path / f"runs{redraw}")
            losses.append(result.metrics["loss"][0])
            assert losses[-1][-1] == pytest.approx(simulate(*problem, rounds=2).metrics["loss"][0, -1], rel=1e-5)
        assert losses[0][-1] != losses[1][-1]


def test_a_helper_that_is_loaded_again_counts(tmp_path, monkeypatch):
    """The class is the same object; the program that was compiled of it is not used again."""
    name = own_module(tmp_path, monkeypatch, STRATEGY.format(sign="helper().sign()"))
    source = (tmp_path / f"{name}.py").read_text()
    (tmp_path / f"{name}.py").write_text(
        f"{source}\ndef helper():\n    import {name}_helper\n    return {name}_helper\n"
    )
    (tmp_path / f"{name}_helper.py").write_text("def sign(): return 1\n")
    module, helper = (importlib.import_module(each) for each in (name, f"{name}_helper"))
    found = [played(tmp_path / "runs", module.Ranked(m=2))]
    (tmp_path / f"{name}_helper.py").write_text("def sign(): return -1\n")
    found.append(played(tmp_path / "runs", module.Ranked(m=2)))  # edited, and not loaded: Python has the old one
    importlib.reload(helper)
    found.append(played(tmp_path / "runs", module.Ranked(m=2)))
    assert found == [([2, 3], [2, 3]), ([2, 3], [2, 3]), ([0, 1], [0, 1])]


def test_an_object_of_an_earlier_definition_is_refused(tmp_path, monkeypatch):
    module = importlib.import_module(own_module(tmp_path, monkeypatch, STRATEGY.format(sign=1)))
    experiment = Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=1)
    experiment.identity(0)
    importlib.reload(module)
    with pytest.raises(ValueError, match="experiment: selector must be of the Ranked that was defined last: make it a"):
        experiment.identity(0)
    assert Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=1).identity(0) == experiment_again(module)


def experiment_again(module):
    return Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=1).identity(0)


TYPED = """
import sys, tempfile
from fedpick.compare import load_report
from fedpick.experiment import Experiment, from_plain, run
from fedpick.sim import Local, Quadratic, QuadraticModel

folder = tempfile.mkdtemp()
def play():
    selector = Ranked(m=2)
    experiment = Experiment(Quadratic(K=4), QuadraticModel(), selector, Local(tau=1, b=1, eta=1e-4), rounds=2)
    (result,) = run(experiment, folder)
    print(experiment.identity(0), sorted(set(result.records["clients"].ravel().tolist())))
"""


def test_what_is_typed_in_is_known_by_what_it_does():
    """As in a notebook: the module has no file, and cells are run again."""
    cells = [TYPED, STRATEGY.format(sign="sign(1)"), "def sign(number): return FACTOR * number", "FACTOR = 1"]
    cells += ["play()", STRATEGY.format(sign="sign(1)"), "play()", "def sign(number): return -FACTOR * number"]
    cells += ["play()", "FACTOR = -1", "play()", STRATEGY.format(sign="sign(-1)"), "play()", "FACTOR = object()"]
    cells += ["try:\n    play()\nexcept ValueError as error: print(error)"]
    text = "".join(f"exec({cell!r}, globals())\n" for cell in cells)
    done = subprocess.run([sys.executable, "-"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    *lines, error = done.stdout.splitlines()
    assert lines[0] == lines[1]
    identities, clients = zip(*(line.split(" ", 1) for line in lines[1:]), strict=True)
    assert len(set(identities)) == 4
    assert clients == ("[2, 3]", "[0, 1]", "[2, 3]", "[0, 1]")
    assert error.startswith("Ranked: what is typed in, to be stored, must refer to numbers, texts, arrays, functions")
    assert error.endswith("got FACTOR, which is of class object")


def test_installed_code_has_no_sources():
    assert sources_of([Rand(m=2), LOCAL, np.zeros]) == ()
    assert sum_of_code(Rand) == ""
    assert [name for name, _ in sources_of(played)] == [f"{__name__}:played"]


def test_classes_of_one_name_in_two_files_are_played_apart(tmp_path, monkeypatch):
    selectors = []
    for sign in (1, -1):
        (tmp_path / f"{sign}").mkdir()
        name = own_module(tmp_path / f"{sign}", monkeypatch, STRATEGY.format(sign=sign))
        selectors.append(importlib.import_module(name).Ranked(m=2))
    found = run([Experiment(*PROBLEM, each, LOCAL, rounds=3) for each in selectors], tmp_path / "runs")
    assert list(map(chosen, found)) == [[2, 3], [0, 1]]


def test_what_is_derived_from_a_class_of_fedpick_is_another_run(tmp_path, monkeypatch):
    text = """
import jax, jax.numpy as jnp
from fedpick import pytree
from fedpick.sim import Failures, Liars, Server

@pytree
class Still(Server):
    def combine(self, weights, trained, before): return jax.tree.map(jnp.zeros_like, before)

@pytree
class Storm(Failures):
    def __call__(self, key, t, K): return jnp.ones(K, bool)

@pytree
class Third(Liars):
    share: float = 0.3
    attack: str = "max"
"""
    module = importlib.import_module(own_module(tmp_path, monkeypatch, text))
    lying = Experiment(*PROBLEM, Rand(m=2), LOCAL, rounds=3, liars=module.Third())
    assert lying.identity(0) != Experiment(*PROBLEM, Rand(m=2), LOCAL, rounds=3).identity(0)
    worlds = [{}, {"server": module.Still()}, {"failures": module.Storm()}]
    (moved, *rest) = run(
        [Experiment(*PROBLEM, Rand(m=2), LOCAL, rounds=3, **each) for each in worlds], tmp_path / "runs"
    )
    assert [np.ptp(one.metrics["loss"]) > 0 for one in (moved, *rest)] == [True, False, False]
    experiment = Experiment(*PROBLEM, Rand(m=2), LOCAL, rounds=3, server=module.Still())
    (again,) = from_plain(experiment.to_plain())  # as a worker and a resumption read it
    assert (type(again.server), again.identity(0)) == (module.Still, experiment.identity(0))
    with pytest.raises(
        ValueError, match=r"^experiment: server.kind must be a class that is derived from Server, got '"
    ):
        from_plain({**experiment.to_plain(), "server": {"kind": "fedpick.sim:Failures"}})


READING = (
    STRATEGY.format(sign="toward()")
    + """
from pathlib import Path
SIGN, TABLE, CALLS, KNOWN = 1, {"scale": 1.0}, 0, {}
def toward():
    global CALLS
    CALLS += 1
    KNOWN[CALLS] = SIGN * TABLE["scale"]
    return KNOWN[CALLS] * len(Path(__file__).suffixes)
"""
)


def test_a_value_that_own_code_reads_counts_as_it_is(tmp_path, monkeypatch):
    module = importlib.import_module(own_module(tmp_path, monkeypatch, READING))
    identity = Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=3).identity(0)
    assert played(tmp_path / "runs", module.Ranked(m=2)) == ([2, 3], [2, 3])
    assert Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=3).identity(0) == identity  # of other calls
    module.SIGN = -1
    assert played(tmp_path / "runs", module.Ranked(m=2)) == ([0, 1], [0, 1])
    module.TABLE["scale"] = -1.0
    assert played(tmp_path / "runs", module.Ranked(m=2)) == ([2, 3], [2, 3])
    assert len(list((tmp_path / "runs" / "runs").iterdir())) == 3
    (tmp_path / "other").mkdir()
    other = importlib.import_module(own_module(tmp_path / "other", monkeypatch, READING))  # of another name and folder
    assert sum_of_code(other.Ranked) != sum_of_code(module.Ranked)
    module.SIGN, module.TABLE = 1, {"scale": 1.0}
    assert sum_of_code(other.Ranked) == sum_of_code(module.Ranked)
    assert Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=3).identity(0) == identity


def test_a_value_that_an_own_metric_or_model_reads_counts_as_it_is(tmp_path, monkeypatch):
    text = """
import jax.numpy as jnp
from fedpick.sim import from_apply
from {name} import values
def half(logits, labels): return values.SCALE * jnp.float32(0.5)
network = from_apply(lambda key: jnp.ones((60, 10)).at[:, 0].set(2.0), lambda w, x, key: values.SCALE * (x @ w))
"""
    name = own_module(tmp_path, monkeypatch, "")
    (tmp_path / f"{name}.py").rename(tmp_path / "none.py")
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "values.py").write_text("SCALE = 1.0")
    (tmp_path / name / "mine.py").write_text(text.format(name=name))
    mine, values = (importlib.import_module(f"{name}.{part}") for part in ("mine", "values"))
    data = Synthetic(K=3).federation()
    found = []
    for values.SCALE in (1.0, 10.0):
        result = simulate(data, mine.network, Rand(m=2), LOCAL, rounds=1, metrics=[mine.half])
        found.append([*result.metrics["test_half"][0], result.metrics["loss"][0, 0]])
    np.testing.assert_allclose(found[1][:2], 10 * np.array(found[0][:2]))
    assert found[1][2] > 2 * found[0][2]


@pytest.mark.parametrize("declared", ["Float[Array, ' K']", "Array"])
def test_a_strategy_with_an_array_of_its_own_is_stored(tmp_path, monkeypatch, declared):
    text = STRATEGY.replace("m: int = static()", f"m: int = static()\n    prior: {declared}")
    text = "from jaxtyping import Array, Float" + text.replace(
        "jnp.arange(clients.size.shape[0])", "self.prior[jnp.arange(clients.size.shape[0]) % self.prior.shape[0]]"
    )
    name = own_module(tmp_path, monkeypatch, text.format(sign="1"))
    plain = Experiment(*PROBLEM, Rand(m=2), LOCAL, rounds=3).to_plain()
    selectors = [{"kind": f"{name}:Ranked", "m": 2, "prior": prior} for prior in ([0, 0, 1, 2], [2, 1, 0, 0.5])]
    found = run(from_plain({**plain, "selector": selectors}), tmp_path / "runs")
    assert list(map(chosen, found)) == [[2, 3], [0, 1]]
    assert run(from_plain({**plain, "selector": selectors[0]}), tmp_path / "runs")[0].runs == [{"seed": 0}]
    assert len(list((tmp_path / "runs" / "runs").iterdir())) == 2


@pytest.mark.parametrize("sign", ["jitted(1)", "jax.lax.scan(body, 0, jnp.ones(1))[1][0]"])
def test_what_jax_has_traced_of_own_code_is_traced_again_for_another_value(tmp_path, monkeypatch, sign):
    """JAX keeps programs of inner functions by the function alone."""
    text = f"""
import jax
SIGN = 1
{STRATEGY.format(sign=sign)}
@jax.jit
def jitted(one): return one * SIGN
def body(carry, x): return carry, x * SIGN
def higher(logits, labels): return jitted(1.0)
"""
    module = importlib.import_module(own_module(tmp_path, monkeypatch, text))
    found = []
    for module.SIGN in (1, -1):
        result = simulate(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=1)
        found.append((chosen(result), float(module.jitted(1.0))))
    assert found == [([2, 3], 1.0), ([0, 1], -1.0)]


SETTINGS = """
import dataclasses, functools
class Scale:
    def __init__(self, scale, seen=()):
        self.scale, self.calls, self.seen = scale, 0, [*seen]
    def __call__(self, logits, labels):
        self.calls += 1
        self.seen.append(self.calls)
        return self.scale
class Base:
    offset = 0
    played = 0
class Mine(Base):
    def __call__(self):
        Base.played += 1
        return self.offset
def make(scale, calls=()):
    known = [*calls]
    def metric(logits, labels, by=scale):
        known.append(1)
        return scale
    return metric
def times(scale, logits, labels): return scale
def read(logits, labels): return held(logits, labels)
def listed(logits, labels): return [each(logits, labels) for each in TABLE["a"]]
def weights(given):
    weights = []
    weights.append(given)
    return WEIGHTS[0] + local(weights)
def local(given):
    WEIGHTS = []
    WEIGHTS.append(given)
    return WEIGHTS
WEIGHTS = [0]
TABLE = {}
held = Scale(2)
"""


def test_what_own_code_reads_of_classes_closures_and_objects_counts(tmp_path, monkeypatch):
    module = importlib.import_module(own_module(tmp_path, monkeypatch, SETTINGS))

    def differ(*values):
        sums = [sum_of_code(value, module) for value in values]
        return len(set(sums)) == len(sums)

    assert differ(*(module.make(scale) for scale in (1, 2)))
    assert differ(*(module.Scale(scale) for scale in (1, 2)))
    assert differ(*(module.functools.partial(module.times, scale) for scale in (1, 2)))
    assert differ(*(from_apply(module.make(1), module.make(scale)) for scale in (1, 2)))
    sums = []
    for offset, held, table, weight in ((0, 2, [1, 2], 0), (1, 3, [2, 1], 1)):
        module.Base.offset, module.held, module.WEIGHTS[0] = offset, module.Scale(held), weight
        module.TABLE["a"] = [module.make(scale) for scale in table]
        sums.append([sum_of_code(each) for each in (module.Mine, module.read, module.listed, module.weights)])
    for each in zip(*sums, strict=True):
        assert len(set(each)) == 2
    # What they change themselves is left out.
    same = [module.Scale(1), module.make(1)]
    before = [sum_of_code(each) for each in same]
    for each in (*same, module.Mine()):
        each(*() if isinstance(each, module.Mine) else (1, 2))
    assert (module.Base.played, same[0].calls, before) == (1, 1, [sum_of_code(each) for each in same])


def test_every_number_of_an_array_that_own_code_reads_counts(tmp_path, monkeypatch):
    module = importlib.import_module(own_module(tmp_path, monkeypatch, "def read(): return BIG\nBIG = None"))
    sums = []
    for at in ([], [1], [1, 3], [3, 5]):
        module.BIG = np.zeros(3_000_000, np.float32)
        module.BIG[at] = 1
        sums += [sum_of_code(module.read)]
        module.BIG = jax.numpy.asarray(module.BIG)
        assert sums[-1] == sum_of_code(module.read) == sum_of_code(module.read)
    assert len(set(sums)) == 4


LOADED = """
import functools, jax
from {name}_helper import factor
def plain(of):
    def inner(*given): return of(*given)
    return inner
def first(x): return x
both = [first]
def first(x): return 2 * x
@jax.jit
def jitted(x): return x
@plain
def wrapped(x): return x
class Mine:
    @property
    def member(self): return (lambda y: y)(1)
    @functools.cached_property
    def other(self): return 1
def read(x): return [both[0](x), first(x), jitted(x), wrapped(x), Mine().member, factor()]
"""


def test_code_that_is_not_what_its_file_has_is_not_stored(tmp_path, monkeypatch):
    name = own_module(tmp_path, monkeypatch, "")
    helper = tmp_path / f"{name}_helper.py"
    helper.write_text("def factor(): return 1")
    (tmp_path / f"{name}.py").write_text(LOADED.format(name=name))
    module = importlib.import_module(name)
    helper.write_text("def factor(): return 22")  # after it was loaded, and before it was asked about
    with pytest.raises(
        ValueError, match=r"^experiment: factor must be as .*_helper.py has it, to be stored, got an ear"
    ):
        sum_of_code(module.read)
    importlib.reload(sys.modules[f"{name}_helper"])  # of which the module still has the earlier function
    with pytest.raises(ValueError, match=r"load .*_helper.py again, and what imports from it, or start Python again$"):
        sum_of_code(module.read)
    importlib.reload(module)
    assert sum_of_code(module.read)
    helper.write_text("def factor(): return 333")
    assert sum_of_code(module.read)  # it is known what was loaded


def test_a_script_that_is_edited_while_it_runs_is_what_python_loaded(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
from fedpick.storage import sum_of_code
def mine(): return 1
before = sum_of_code(mine)
text = open(__file__).read()
open(__file__, "w").write(text.replace("return 1", "return 2"))
print(before == sum_of_code(mine), before)
""")
    (same, first), (again, second) = (
        subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout.split()
        for _ in range(2)
    )
    assert (same, again) == ("True", "True")
    assert first != second


def test_files_in_lists_of_a_field_count(tmp_path):
    (tmp_path / "a.csv").write_text("1")
    path = str(tmp_path / "a.csv")
    assert sums_of_files([path]) == sums_of_files([[1, ("none", path)]]) == sums_of_files([{"a": [path]}])
    assert sums_of_files([{"kind": "csv", "path": path}, 1, None]) == {}


def test_what_is_typed_in_counts_with_own_modules_and_in_its_order(tmp_path):
    (tmp_path / "settings.py").write_text("SCALE = 1")
    text = """
import settings
from fedpick.storage import sum_of_code
def one(): return 1
def two(): return 2
def read(): return settings.SCALE
def play(): return [stage() for stage in stages]
stages = [one, two, one]
print(sum_of_code(play), sum_of_code(read))
stages = [one, two, two]
settings.SCALE = 2
print(sum_of_code(play), sum_of_code(read))
"""
    found = subprocess.run([sys.executable, "-"], input=text, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert len(set(found.stdout.split())) == 4


def test_runs_that_differ_in_what_own_code_reads_are_not_said_to_be_edited(tmp_path, monkeypatch):
    module = importlib.import_module(own_module(tmp_path, monkeypatch, READING))
    for module.SIGN in (1, -1):
        run(Experiment(*PROBLEM, module.Ranked(m=2), LOCAL, rounds=1), tmp_path / "runs")
    module.SIGN = 2
    words = "holds runs that differ in .*:Ranked, or in what it reads, and none of them is of it as it is now; run the"
    with pytest.raises(ValueError, match=words):
        load_report(tmp_path / "runs")
