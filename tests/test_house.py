"""Who may import whom, by room and by file, and what `import fedpick` must not bring along."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fedpick"
FILES = sorted(SOURCE.rglob("*.py"))

# Room -> the rooms it may see. All may see `pytrees`, `metrics`, `text` and `validation`.
FOUNDATION = {"pytrees", "metrics", "text", "validation"}
MAY_IMPORT = {
    "pytrees": set(),
    "metrics": set(),
    "text": set(),
    "validation": set(),
    "tables": set(),
    "addresses": set(),
    "registry": {"addresses", "tables"},
    "keys": set(),
    "form": set(),
    "declarations": {"form"},
    "protocol": {"keys", "form", "declarations"},
    "purity": set(),
    "updates": {"protocol"},
    "tracing": {"form", "protocol", "purity", "updates"},
    "storage": set(),
    "sampling": {"protocol"},
    "ledger": {"protocol"},
    "selectors": {"protocol", "sampling", "ledger"},
    "checks": {"protocol", "updates", "tracing"},
    "theory": {"protocol"},
    "config": {"registry"},
    "report": {"storage"},
    "results": {"report", "storage"},
    "sim": {"form", "protocol", "updates", "purity", "tracing", "sampling", "registry", "storage", "results"},
    "experiment": {"protocol", "registry", "config", "selectors", "theory", "storage", "results", "sim"},
    "compare": {"protocol", "registry", "config", "storage", "report", "results", "sim", "experiment"},
    "paper": {
        "protocol", "registry", "config", "selectors", "theory", "storage", "report", "results", "sim", "experiment",
    },
    "arena": {"registry", "selectors", "storage", "report", "results", "sim", "experiment", "compare"},
    "flower": {"protocol", "updates", "tracing", "sampling", "registry", "config", "storage"},
    "flower.demo": {"protocol", "registry", "storage", "flower"},
    "flower.simulation": {"registry", "config", "storage", "flower"},
    "cli": {
        "registry", "config", "selectors", "theory", "storage", "report", "results", "sim", "experiment", "compare",
        "arena", "paper", "flower", "flower.demo", "flower.simulation",
    },
    "__main__": {"cli"},
}  # fmt: skip


def module(path):
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module(path): path for path in FILES}


def imports(path):
    """The modules that a file imports, in functions and for types, too."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name == "fedpick" or name.startswith("fedpick."):
                parts = name.split(".")[1:]
                while parts and ".".join(parts) not in MODULES:
                    parts.pop()  # a name of a module
                yield ".".join(parts)


def room(name):
    inner = next((each for each in ("flower.demo", "flower.simulation") if name.startswith(each)), None)
    return inner or name.split(".")[0]


INNER = [path for path in FILES if module(path)]


@pytest.mark.parametrize("path", INNER, ids=module)
def test_a_file_sees_only_the_rooms_it_may_and_enters_by_the_door(path):
    own = room(module(path))
    for name in imports(path):
        assert name, f"{module(path)} imports the whole package"
        if room(name) == own:
            continue
        assert room(name) in MAY_IMPORT[own] | FOUNDATION, f"{module(path)} imports {name}"
        assert name == room(name), f"{module(path)} goes past the door: {name}"


def test_the_table_is_of_these_rooms():
    assert {room(name) for name in MODULES if name} == set(MAY_IMPORT)


@pytest.mark.no_cover
def test_no_cycle_between_files():
    graph = {module(path): set(imports(path)) - {module(path)} for path in INNER}
    for name, seen in graph.items():  # a file and the door of its own room are no cycle: the door lists what is inside
        graph[name] = {other for other in seen if room(other) != room(name) or not name.startswith(f"{other}.")}
    list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError


@pytest.mark.no_cover
def test_no_file_imports_the_door_of_its_own_room():
    inside = {(module(path), name) for path in INNER for name in imports(path) if module(path).startswith(f"{name}.")}
    inside -= {(name, door) for name, door in inside if room(name) != room(door)}
    assert not inside


def test_only_storage_writes_files():
    for path in INNER:
        if room(module(path)) != "storage":
            text = path.read_text()
            for word in ("os.replace(", "NamedTemporaryFile(", ".write_text(", ".write_bytes(", "np.savez"):
                assert word not in text, f"{module(path)} has {word}"


@pytest.mark.no_cover
def test_library_code_does_not_print():
    for path in INNER:
        if room(module(path)) not in ("cli", "__main__"):
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert not [call for call in calls if getattr(call.func, "id", "") == "print"], module(path)


def test_import_fedpick_brings_neither_flower_nor_plotting_nor_data():
    heavy = ["flwr", "altair", "matplotlib", "pandas", "sklearn", "torch", "urllib.request", "typer", "rich", "jax"]
    code = f"import sys, fedpick; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.no_cover
def test_rooms_and_names_are_reached_from_the_root():
    code = "import fedpick; print(fedpick.sim.__name__, fedpick.theory.__name__, fedpick.PowerOfChoice(2, 3).m)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["fedpick.sim", "fedpick.theory", "2"]
    import fedpick

    public = {*fedpick._NAMES} - {"flower"}
    typed = {alias.name for node in ast.walk(ast.parse((SOURCE / "__init__.py").read_text()))
             if isinstance(node, ast.ImportFrom) and node.module != "typing" for alias in node.names}  # fmt: skip
    for place, names in (("__all__", {*fedpick.__all__}), ("the imports under TYPE_CHECKING", typed - {"flower"})):
        missing, other = sorted(public - names), sorted(names - public)
        assert not missing, f"add to {place} of src/fedpick/__init__.py: {', '.join(missing)}"
        assert not other, f"name in __all__ of src/fedpick/__init__.py, or drop from {place}: {', '.join(other)}"
    assert {*fedpick.selectors.__all__} <= {*fedpick.__all__}, "export what selectors has in src/fedpick/__init__.py"
    strange = [name for name in fedpick.__all__ if not hasattr(fedpick, name)]
    assert not strange, f"export from selectors/__init__.py, or give a home in _HOME: {', '.join(strange)}"
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")} - {"cli"}
    assert set(fedpick._ROOMS) == packages | {"registry"}
    for name in dir(fedpick):
        assert getattr(fedpick, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        fedpick.nothing  # noqa: B018


def test_no_file_has_a_second_subject():
    lines = {module(path): len(path.read_text().splitlines()) for path in FILES}
    assert not {name: number for name, number in lines.items() if number > 300}
