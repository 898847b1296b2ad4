"""The environments of the peers: one per framework, made on request only, so that none can break another or fedpick."""

import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

TORCH = ("torch==2.13.0", "numpy")
PACKAGES: dict[str, tuple[str, ...]] = {
    "torch": TORCH,
    "fedjax": ("fedjax==0.0.17", "jax==0.10.2"),
    "pfl": (*TORCH, "pfl==0.6.0"),
    "flower": (*TORCH, "flwr[simulation]==1.41.0"),
    "fedlab": (*TORCH, "fedlab==1.3.0"),
    "flgo": (*TORCH, "flgo==0.4.4"),
}


@dataclass(frozen=True)
class Peer:
    """A program of the comparison and the environment it runs in; fedpick runs in the project's own."""

    name: str
    program: str
    environment: str | None = None


PEERS = (
    Peer("fedpick", "fedpick_sim.py"),
    Peer("torch-index", "torch_index.py", "torch"),
    Peer("torch-foreach", "torch_foreach.py", "torch"),
    Peer("torch-dataloader", "torch_dataloader.py", "torch"),
    Peer("torch-vmap", "torch_vmap.py", "torch"),
    Peer("fedjax", "fedjax_sim.py", "fedjax"),
    Peer("pfl", "pfl_sim.py", "pfl"),
    Peer("flower", "flower_sim.py", "flower"),
    Peer("fedlab", "fedlab_sim.py", "fedlab"),
    Peer("flgo", "flgo_sim.py", "flgo"),
)


def make(environment: str, folder: Path) -> None:
    """Make an environment and install into it; what went wrong is kept next to it for ``missing``."""
    ready, failed = folder / environment / "ready", folder / f"{environment}.failed"
    if ready.exists():
        return
    venv.create(folder / environment, with_pip=True, clear=True)
    command = [str(_python(environment, folder)), "-m", "pip", "install", "--quiet", *PACKAGES[environment]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        failed.write_text(errors[-1] if errors else f"pip returned {done.returncode}")
    else:
        failed.unlink(missing_ok=True)
        ready.touch()


def python(peer: Peer, folder: Path) -> Path:
    """The interpreter that runs a peer."""
    return Path(sys.executable) if peer.environment is None else _python(peer.environment, folder)


def missing(peer: Peer, folder: Path) -> str | None:
    """Why a peer cannot run here, None where it can."""
    if peer.environment is None or (folder / peer.environment / "ready").exists():
        return None
    failed = folder / f"{peer.environment}.failed"
    return failed.read_text() if failed.exists() else "its environment is made with --make"


def _python(environment: str, folder: Path) -> Path:
    place = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return folder.absolute() / environment / Path(*place)
