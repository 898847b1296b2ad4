"""Hierarchical clustering of clients by Ward's criterion, compiled: a tree of merges, and two ways to cut it."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from fedpick.sampling._order import Number, count, int32
from fedpick.sampling.draws import first_k, first_k_mask, integers, uniform_keys

BLOCK = 1024  # clients that are compared with the landmarks at a time
GRID = 2.0**18  # cosines are rounded: copies of one direction are exactly 0 apart, however a product is summed


class Merges(NamedTuple):
    """The merges of a tree, nearest first: at ``height``, cluster ``other`` joins cluster ``into``.

    A cluster is named after its smallest member. Where nothing is left to merge, the height is +inf.
    """

    into: Int[Array, " n"]
    other: Int[Array, " n"]
    height: Float[Array, " n"]


class Groups(NamedTuple):
    """Clients in at most G groups: the group of each, the client that stands for each group, how many it holds."""

    group: Int[Array, " K"]
    landmark: Int[Array, " G"]
    number: Float[Array, " G"]


def ward(distance: Float[Array, "G G"], number: Float[Array, " G"]) -> Merges:
    """Agglomerative clustering by Ward's criterion, as ``scipy.cluster.hierarchy.linkage(..., "ward")``.

    The two nearest clusters merge, ties by the smallest members, and the distance of i and j together to k follows by
    Lance and Williams, ((n_i + n_k) d_ik^2 + (n_j + n_k) d_jk^2 - n_k d_ij^2) / (n_i + n_j + n_k), squared. A group of
    n_i clients starts as a cluster of that number: its squared distances are times 2 n_i n_j / (n_i + n_j).

    Args:
        distance: Distances of the groups, any symmetric numbers; the diagonal is not looked at.
        number: Clients in each group; a group of 0 takes no part.

    >>> apart = jnp.abs(jnp.array([0.0, 1.0, 5.0])[:, None] - jnp.array([[0.0, 1.0, 5.0]]))
    >>> tree = ward(apart, jnp.ones(3))
    >>> tree.into, tree.other
    (Array([0, 0], dtype=int32), Array([1, 2], dtype=int32))
    """
    merges: Merges = _ward(distance, number)
    return merges


@jax.jit
def _ward(distance: Float[Array, "G G"], number: Float[Array, " G"]) -> Merges:
    G = number.shape[0]
    places = jnp.arange(G, dtype=jnp.int32)
    n = number.astype(jnp.float32)
    together = n[:, None] + n[None, :]
    scale = 2 * n[:, None] * n[None, :] / jnp.where(together > 0, together, jnp.float32(1))
    apart = (n[:, None] > 0) & (n[None, :] > 0) & (places[:, None] != places[None, :])
    square = jnp.where(apart, scale * jnp.square(distance), jnp.inf)

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], tuple[Array, Array, Array]]:
        square, n = carry
        smallest = square.min(axis=1)
        i = lax.argmin(smallest, 0, jnp.int32)
        j = lax.argmin(square[i], 0, jnp.int32)
        height = smallest[i]
        merged = height < jnp.inf
        total = jnp.where(merged, n[i] + n[j] + n, jnp.float32(1))
        row = ((n[i] + n) * square[i] + (n[j] + n) * square[j] - n * height) / total
        present = merged & (square[i] < jnp.inf) & (places != j)
        row = jnp.where(present, jnp.maximum(row, 0), jnp.inf)  # above 0 by the algebra, and here by the rounding, too
        after = square.at[i].set(row).at[:, i].set(row).at[j].set(jnp.inf).at[:, j].set(jnp.inf)
        number = n.at[i].add(n[j]).at[j].set(jnp.float32(0))
        return (jnp.where(merged, after, square), jnp.where(merged, number, n)), (i, j, jnp.sqrt(height))

    return Merges(*lax.scan(step, (square, n), None, length=max(G - 1, 0))[1])


def cut_by_mass(tree: Merges, mass: Float[Array, " G"], most: float | Float[Array, ""]) -> Int[Array, " G"]:
    """The largest clusters of the tree of at most this mass, each named after its smallest member.

    Args:
        tree: The merges.
        mass: Mass of each group.
        most: Mass that no cluster of two or more exceeds.

    >>> apart = jnp.abs(jnp.array([0.0, 1.0, 5.0])[:, None] - jnp.array([[0.0, 1.0, 5.0]]))
    >>> cut_by_mass(ward(apart, jnp.ones(3)), jnp.array([0.3, 0.3, 0.6]), 0.7)
    Array([0, 0, 2], dtype=int32)
    """
    names: Int[Array, " G"] = _cut_by_mass(tree, mass, jnp.asarray(most, jnp.float32))
    return names


@jax.jit
def _cut_by_mass(tree: Merges, mass: Float[Array, " G"], most: Float[Array, ""]) -> Int[Array, " G"]:
    def step(mass: Array, merge: Merges) -> tuple[Array, Array]:
        total = mass[merge.into] + mass[merge.other]
        return mass.at[merge.into].set(total), total <= most

    return _names(tree, lax.scan(step, mass, tree)[1])


def cut_by_number(tree: Merges, number: Number) -> Int[Array, " G"]:
    """So many clusters, fewer where there are fewer groups, each named after its smallest member.

    Args:
        tree: The merges.
        number: Number of clusters; it may be traced.

    >>> apart = jnp.abs(jnp.array([0.0, 1.0, 5.0])[:, None] - jnp.array([[0.0, 1.0, 5.0]]))
    >>> cut_by_number(ward(apart, jnp.ones(3)), 2)
    Array([0, 0, 2], dtype=int32)
    """
    names: Int[Array, " G"] = _cut_by_number(tree, int32(number))
    return names


@jax.jit
def _cut_by_number(tree: Merges, number: Int[Array, ""]) -> Int[Array, " G"]:
    merges = count(tree.height < jnp.inf)
    return _names(tree, jnp.arange(tree.into.shape[0], dtype=jnp.int32) < merges + 1 - number)


def _names(tree: Merges, accepted: Bool[Array, " n"]) -> Int[Array, " G"]:
    """The name of each group's cluster after the accepted merges."""

    def step(name: Array, merge: tuple[Merges, Array]) -> tuple[Array, None]:
        (into, other, height), wanted = merge
        return jnp.where(wanted & (height < jnp.inf) & (name == other), into, name), None

    return lax.scan(step, jnp.arange(tree.into.shape[0] + 1, dtype=jnp.int32), (tree, accepted))[0]


def directions(rows: Float[Array, "K s"]) -> Float[Array, "K s"]:
    """Unit vectors; 0 for a row that is 0 or not finite.

    >>> directions(jnp.array([[3.0, 4.0], [0.0, 0.0]]))
    Array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    largest = jnp.abs(rows).max(axis=1, keepdims=True)
    able = (largest > 0) & (largest < jnp.inf)
    scaled = jnp.where(able, rows / jnp.where(able, largest, jnp.float32(1)), jnp.float32(0))
    return scaled / jnp.where(able, jnp.sqrt(jnp.sum(scaled * scaled, axis=1, keepdims=True)), jnp.float32(1))


def cosines(one: Float[Array, "A s"], other: Float[Array, "B s"]) -> Float[Array, "A B"]:
    """Cosines of the angles between directions; two rows of 0 count as one direction, at a right angle to the others.

    Args:
        one: Directions.
        other: Directions.

    >>> cosines(jnp.array([[1.0, 0.0], [0.0, 0.0]]), jnp.array([[0.0, 1.0], [0.0, 0.0]]))
    Array([[0., 0.],
           [0., 1.]], dtype=float32)
    """
    product = jnp.matmul(one, other.T, precision=lax.Precision.HIGHEST)
    blank = ~(one != 0).any(axis=1)[:, None] & ~(other != 0).any(axis=1)[None, :]
    return jnp.where(blank, jnp.float32(1), jnp.clip(jnp.round(product * GRID) / GRID, -1, 1))


def gather(
    key: PRNGKeyArray,
    rows: Float[Array, "K s"],
    level: Float[Array, " K"],
    present: Bool[Array, " K"],
    *,
    groups: int,
) -> Groups:
    """Clients in at most so many groups by nearness to a landmark; up to that many clients, each is a group.

    The landmarks are clients: half of them, as far as there are, with a direction, the others drawn from all the rest.
    Nearness is the chord between two directions plus the difference of two levels. Clients without a direction are
    alike: they are spread evenly over the landmarks without one.

    Args:
        key: Random key.
        rows: Directions, 0 for none.
        level: A further coordinate.
        present: Who takes part.
        groups: Number of groups; static.

    >>> gather(jax.random.key(0), jnp.eye(3), jnp.zeros(3), jnp.array([True, True, False]), groups=3).number
    Array([1., 1., 0.], dtype=float32)
    """
    K = rows.shape[0]
    if groups >= K:
        everyone = jnp.arange(K, dtype=jnp.int32)
        return Groups(everyone, everyone, present.astype(jnp.float32))
    first_key, rest_key, spread_key = jax.random.split(key, 3)
    directed = (rows != 0).any(axis=1)
    first = first_k_mask(uniform_keys(first_key, present & directed), groups // 2)
    landmark, filled = first_k(jnp.where(first, jnp.float32(0), uniform_keys(rest_key, present)), groups)
    there, heights = rows[landmark], level[landmark]

    def nearest(block: tuple[Array, Array]) -> Array:
        chord = jnp.sqrt(2 - 2 * cosines(block[0], there))
        distance = jnp.where(filled[None, :], chord + jnp.abs(block[1][:, None] - heights[None, :]), jnp.inf)
        return lax.argmin(distance, 1, jnp.int32)

    def blocks(values: Array) -> Array:
        padding = [(0, -K % BLOCK)] + [(0, 0)] * (values.ndim - 1)
        return jnp.pad(values, padding).reshape(-1, BLOCK, *values.shape[1:])

    group = lax.map(nearest, (blocks(rows), blocks(level))).reshape(-1)[:K]
    blank = filled & ~directed[landmark]
    order = lax.sort((~blank, jnp.arange(groups, dtype=jnp.int32)), num_keys=2)[1]
    spread = order[integers(spread_key, (K,), jnp.maximum(count(blank), 1))]
    group = jnp.where(~directed & blank.any(), spread, group)
    number = jax.ops.segment_sum(present.astype(jnp.float32), group, num_segments=groups)
    return Groups(group, landmark, number)
