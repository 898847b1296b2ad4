"""Programs that wait side by side and compute in turn, so that what slows the machine down slows all of them."""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

Answer = dict[str, Any]
OTHERS = 0.1  # cores: what other processes may use in a turn that counts
TRIES = 4  # of a turn
PATIENCE = 20.0  # seconds to wait for others to end before a turn is taken again


class Program:
    """A process that answers a number of rounds with a line of JSON; see ``peers/serve.py``."""

    def __init__(self, name: str, command: Sequence[str | Path], platform: str = "cpu") -> None:
        self.name = name
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed in __exit__)
        # OMP_WAIT_POLICY stays as it is: PyTorch spins for a few milliseconds only, and is a third slower without.
        environment = os.environ | {"JAX_PLATFORMS": platform, "PYTHONWARNINGS": "ignore", "FEDPICK_CACHE": ""}
        self.process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def __enter__(self) -> "Program":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.errors.close()

    def answer(self) -> Answer:
        """The next line of JSON; other output of a framework is passed over. A program that ends says why."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                answer: Answer = json.loads(line)
                return answer
        self.process.wait()
        self.errors.seek(0)
        last = [line for line in self.errors.read().splitlines() if line.strip()][-1:]
        return {"ready": False, "why": last[0] if last else f"ended with status {self.process.returncode}"}

    def play(self, rounds: int) -> Answer:
        """Play so many rounds from a fresh model; where the program has ended, why."""
        assert self.process.stdin is not None
        before, start = _busy(), time.perf_counter()
        try:
            self.process.stdin.write(f"{rounds}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self.answer()
        if "why" in answer:
            return answer
        own = answer["cpu"]
        answer["others"] = 0.0 if own is None else (_busy() - before - own) / (time.perf_counter() - start)
        return answer


def in_turn(
    programs: Sequence[Program], rounds: dict[str, int], repeats: int, tell: Callable[[str], None]
) -> dict[str, list[Answer]]:
    """Every program its number of rounds, one after the other, again and again; each first one is dropped.

    A turn during which other processes were busy is taken again when they are not, a few times: threads that wait for
    one another, as PyTorch's do, may be ten times slower when they have to share a core.
    """
    answers: dict[str, list[Answer]] = {program.name: [] for program in programs}
    for repeat in range(repeats + 1):
        for program in programs:
            for _ in range(TRIES if repeat else 1):
                answer = program.play(rounds[program.name])
                if "why" in answer:
                    raise RuntimeError(f"{program.name}: {answer['why']}")
                used = f"{answer['seconds']:.2f} s, others used {answer['others']:.2f} cores"
                tell(f"repeat {repeat} of {repeats}: {program.name}, {used}")
                if answer["others"] <= OTHERS:
                    break
                _wait_until_quiet()
            if repeat:
                answers[program.name].append(answer | {"rounds": rounds[program.name]})
    return answers


def _wait_until_quiet() -> None:
    start = time.perf_counter()
    while time.perf_counter() - start < PATIENCE:
        before = _busy()
        time.sleep(1)
        if _busy() - before <= OTHERS:
            return


def _busy() -> float:
    """Seconds that all cores together have been busy; 0 where the system does not tell."""
    try:
        counts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system = map(int, counts[:3])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")
