"""Whether code of a user's own is pure: traced again, a function must give the same program.

JAX traces a function once and then runs the program. What the function drew with NumPy, read from a clock or counted in
a global variable while it was traced is a constant in that program, the same in all rounds and for all seeds.
"""

import dataclasses
import functools
import random
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from fedpick.text import brief

TRACES = 5  # a coin that no other check sees falls the same way in one of 16
LIBRARIES = frozenset({"fedpick", "jax", "jaxlib", "jaxtyping", "numpy", "optax"}) | sys.stdlib_module_names
_ONE_AT_A_TIME = threading.Lock()  # the generators of all are those of all threads, and programs are compiled ahead
_ADDRESS = re.compile(r"0x[0-9a-f]+")


def is_own(value: Any, seen: set[int] | None = None) -> bool:
    """Whether it is code of a user's own, or holds some: a function, an object, or what these hold.

    >>> from fedpick import PowerOfChoice
    >>> is_own(PowerOfChoice(m=3, d=6)), is_own([type("Mine", (), {"__module__": "mine"})()])
    (False, True)
    """
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None) | np.ndarray | jax.Array):
        return False
    seen.add(id(value))
    kind = value if isinstance(value, type | types.FunctionType) else type(value)
    if (getattr(kind, "__module__", None) or "builtins").partition(".")[0] not in LIBRARIES:
        return True
    return any(is_own(part, seen) for part in _parts(value))


def _parts(value: Any) -> Iterator[Any]:
    """What a value holds."""
    if isinstance(value, types.FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _filled(cell))
    elif isinstance(value, types.MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, tuple | list | set | frozenset):
        yield from value
    elif isinstance(value, dict):
        yield from value.values()
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from (getattr(value, field.name, None) for field in dataclasses.fields(value))
    elif hasattr(value, "__wrapped__"):
        yield value.__wrapped__


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that its function has not set yet
        return False


def trace_again(owner: str, error: type[ValueError], function: Callable[..., Any], *arguments: Any) -> Any:
    """Trace a function several times; the shapes of what it gives.

    Args:
        owner: What the function is called in an error, such as "UCB.select".
        error: What to raise where it is not pure.
        function: The function; it is not run.
        *arguments: Arrays, or their shapes.

    >>> trace_again("f", ValueError, lambda x: x + 1, np.zeros(3, np.float32))
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """
    programs = []
    with _ONE_AT_A_TIME:
        kept, ends = _states(), []
        begins = [kept]
        try:
            for number in range(TRACES):
                if number == 1:  # whoever seeds the generators of all is not moved by what they were before
                    random.seed(20_210_612)
                    np.random.seed(20_210_612)
                    begins.append(_states())
                closed, shape = _traced(owner, error, function, *arguments)
                programs.append((_ADDRESS.sub("", str(closed)), tuple(constants(closed))))
                ends.append(_states())
        finally:
            random.setstate(kept[0])
            np.random.set_state(_numpy_state(kept[1]))
    moved = any(
        one != other and (one != before or other != moved)
        for before, moved, one, other in zip(*begins, *ends[:2], strict=True)
    )
    if moved or len(set(programs)) > 1:
        why = "it gave another program when traced again (NumPy's random numbers, the clock or a global variable?)"
        raise error(f"{owner} must be a pure function: {why}; draw with jax.random from the key")
    return shape


def _traced(owner: str, error: type[ValueError], function: Callable[..., Any], *arguments: Any) -> Any:
    """The program and the shapes of what it gives; what the function raises, but for its own rules, is a sentence."""
    try:
        return jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*arguments)
    except ValueError:
        raise
    except Exception as failure:
        got = "got:" if isinstance(failure, jax.errors.JAXTypeError) else f"got {type(failure).__name__}:"
        raise error(f"{owner} must be code that JAX can trace, {got} {brief(failure)}") from failure


def _states() -> tuple[Any, tuple[Any, ...]]:
    """Where the random generators of all stand, Python's and NumPy's."""
    state: Any = np.random.get_state()
    name, words, *rest = state
    return random.getstate(), (name, words.tobytes(), *rest)


def _numpy_state(state: tuple[Any, ...]) -> Any:
    name, words, *rest = state
    return (name, np.frombuffer(words, np.uint32), *rest)


def constants(closed: Any) -> Iterator[bytes]:
    """The constants of a traced program and of those inside it, which its text does not show in full.

    >>> table = jax.numpy.arange(2, dtype="int8")
    >>> list(constants(jax.make_jaxpr(jax.jit(lambda x: x + table))(table)))
    [b'\\x00\\x01']
    """
    for value in getattr(closed, "consts", ()):
        yield _bytes(value)
    for equation in getattr(closed, "jaxpr", closed).eqns:
        for operand in equation.invars:
            if hasattr(operand, "val"):
                yield _bytes(operand.val)
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else (value,):
                if hasattr(getattr(inner, "jaxpr", inner), "eqns"):
                    yield from constants(inner)


def _bytes(value: Any) -> bytes:
    if isinstance(value, jax.Array) and jax.numpy.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    return value.tobytes() if hasattr(value, "tobytes") else np.asarray(value).tobytes()
