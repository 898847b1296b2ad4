"""Whether a program draws random numbers that no given key decides."""

from collections.abc import Iterator, Sequence
from typing import Any

LOOPS = ("scan", "while")  # in which what is carried may come to depend on everything that goes in


def inner_programs(equation: Any) -> Iterator[Any]:
    """The programs that an equation of a jaxpr calls."""
    for value in equation.params.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if hasattr(inner := getattr(inner, "jaxpr", inner), "eqns"):
                yield inner


def draws_alone(jaxpr: Any, given: Sequence[bool]) -> bool:
    """Whether random numbers are drawn that do not depend on the inputs that are marked.

    Args:
        jaxpr: The program.
        given: Which of its inputs the keys are made of.

    >>> import jax
    >>> own = jax.make_jaxpr(lambda seed: jax.random.bits(jax.random.key(0)) + seed)
    >>> draws_alone(own(3).jaxpr, [True])
    True
    >>> draws_alone(jax.make_jaxpr(lambda seed: jax.random.bits(jax.random.key(seed)))(3).jaxpr, [True])
    False
    """
    reached = {id(name) for name, marked in zip(jaxpr.invars, given, strict=True) if marked}
    for equation in jaxpr.eqns:
        marks = [id(name) in reached for name in equation.invars]
        if equation.primitive.name == "random_bits" and not any(marks):
            return True
        for inner in inner_programs(equation):
            number = len(inner.invars)  # before them may come which branch of several it is
            plain = equation.primitive.name not in LOOPS and number <= len(marks)
            if draws_alone(inner, marks[len(marks) - number :] if plain else [any(marks)] * number):
                return True
        if any(marks):
            reached.update(map(id, equation.outvars))
    return False
