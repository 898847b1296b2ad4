"""Time to an answer: `fedpick compare` in fresh processes, the first time, with its programs kept, with its runs kept.

    python benchmarks/answer.py             the demo, from an empty cache and an empty folder
    python benchmarks/answer.py digits      another task

For each invocation it prints the seconds of the clock and of the processor (of all cores: what a busy machine does not
change much), when the first line appeared, and what JAX's own events say of where the time went. The table must be the
same each time.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EVENTS = {
    "jaxpr_trace_duration": "trace",
    "jaxpr_to_mlir_module_duration": "lower",
    "backend_compile_duration": "compile or load",
}
CHILD = """
import collections, json, os, sys, time
import jax
from fedpick.cli import app
spent, programs = collections.Counter(), collections.Counter()
def listen(event, seconds, **rest):
    spent[event.rsplit("/", 1)[-1]] += seconds
    programs[event.rsplit("/", 1)[-1]] += 1
jax.monitoring.register_event_duration_secs_listener(listen)
try:
    app(sys.argv[2:])
except SystemExit:
    pass
times = os.times()
with open(sys.argv[1], "w") as file:
    json.dump({"spent": spent, "programs": programs, "cpu": times.user + times.system}, file)
"""


def invoke(task: str, cache: Path, output: Path) -> tuple[str, dict[str, float]]:
    """The table of an invocation, and its times."""
    environment = {**os.environ, "FEDPICK_CACHE": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    with tempfile.NamedTemporaryFile(suffix=".json") as events:
        command = [sys.executable, "-c", CHILD, events.name, "compare", task, "-o", str(output)]
        began = time.monotonic()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        process.stderr.readline()
        first_line = time.monotonic() - began
        out, err = process.communicate()
        seconds = time.monotonic() - began
        if process.returncode:
            raise SystemExit(err)
        seen = json.loads(Path(events.name).read_text())
    found = {"clock": seconds, "processor": seen["cpu"], "first line": first_line}
    found |= {words: seen["spent"].get(event, 0.0) for event, words in EVENTS.items()}
    return out.rsplit("\n\n", 1)[0], {**found, "programs": seen["programs"].get("backend_compile_duration", 0)}


def main() -> None:
    """Print the times of three invocations."""
    task = sys.argv[1] if len(sys.argv) > 1 else "synthetic"
    with tempfile.TemporaryDirectory() as folder:
        root, tables = Path(folder), set()
        print(f"fedpick compare {task}, seconds; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for name, output in (("first", "one"), ("programs kept", "two"), ("runs kept", "two")):
            table, found = invoke(task, root / "cache", root / output)
            tables.add(table)
            print(f"{name:14}", "  ".join(f"{words} {value:.1f}" for words, value in found.items()), flush=True)
        print("the same table each time" if len(tables) == 1 else "THE TABLES DIFFER")
        if len(tables) > 1:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
