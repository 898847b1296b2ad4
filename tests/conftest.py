"""Tests are strict about dtypes and ranks, pinned in their randomness, and use neither a network nor a home."""

import socket
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

hypothesis.settings.register_profile("pinned", derandomize=True, database=None, deadline=None)
hypothesis.settings.load_profile("pinned")


@pytest.fixture(autouse=True)
def _no_heap_of_programs() -> Iterator[None]:
    """Thousands of compiled programs in one process would exhaust its memory maps, of which Linux allows 65,530."""
    yield
    maps = Path("/proc/self/maps")
    if not maps.exists() or maps.read_bytes().count(b"\n") > 35_000:
        jax.clear_caches()


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
