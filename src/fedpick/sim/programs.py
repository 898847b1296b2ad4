"""Compiled programs, kept on disk from one invocation to the next."""

import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache


def keep_programs() -> None:
    """Let JAX keep what it compiles in the user's cache, unless it has a folder already.

    ``FEDPICK_CACHE`` names another folder; empty, nothing is kept. JAX's own ``jax_compilation_cache_dir`` goes
    before both.
    """
    named = os.environ.get("FEDPICK_CACHE")
    if getattr(jax.config, "jax_compilation_cache_dir", None) is not None or named == "":
        return
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedpick"
    folder = Path(named or home) / "programs"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:  # a home that cannot be written to: compile each time, as without
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    compilation_cache.reset_cache()  # it may have settled on having no folder when something was compiled before
