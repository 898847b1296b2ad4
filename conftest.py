"""Tests are strict about dtypes and ranks, pinned in their randomness, and use neither a network nor a home."""

import gc
import itertools
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

from fedpick.sim import release_programs

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

gc.set_threshold(10_000, 10, 10)  # a full collection takes a second where JAX has traced many programs

collect_ignore = ["tests/support/flower_apps"]  # programs for other processes

hypothesis.settings.register_profile("pinned", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("pinned")


@pytest.fixture(scope="session", autouse=True)
def _programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What one process has compiled no other need compile again, nor the same when it has forgotten it."""
    if os.environ.get("JAX_COMPILATION_CACHE_DIR"):  # one that outlives the tests
        yield
        return
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    settings = {
        "jax_compilation_cache_dir": str(shared / "programs"),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            jax.config.update(name, value)
            patch.setenv(name.upper(), str(value))
        compilation_cache.reset_cache()
        yield


TESTS = itertools.count()


@pytest.fixture(autouse=True)
def _no_heap_of_programs() -> Iterator[None]:
    yield
    if next(TESTS) % 5 == 0:  # reading the maps takes some 20 ms
        release_programs()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise AssertionError(f"a test tried to reach the network: {arguments[1:]}")

    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture(autouse=True)
def _no_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    home: Path = tmp_path_factory.mktemp("home")
    for variable in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(variable, str(home))
    monkeypatch.setenv("FEDPICK_CACHE", "")
    yield
    assert not list(home.iterdir()), "a test wrote into the home directory"
