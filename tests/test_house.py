"""Who may import whom, and what `import fedpick` must not bring along."""

import ast
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "fedpick"

# Part of the house -> the parts it may see. All may see `pytrees` and `measures`; nobody imports the package itself.
MAY_IMPORT = {
    "pytrees": set(),
    "measures": set(),
    "protocol": set(),
    "arguments": {"protocol"},
    "sampling": {"protocol"},
    "ledger": {"protocol", "arguments"},
    "selectors": {"protocol", "arguments", "sampling", "ledger"},
    "checks": {"protocol", "arguments"},
    "theory": {"protocol", "arguments"},
    "sim": {"protocol", "arguments", "sampling", "report"},
    "experiment": {"protocol", "arguments", "sim", "selectors", "theory"},
    "store": {"experiment", "sim"},
    "comparison": {"arguments", "experiment", "store", "report", "sim", "selectors"},
    "paper": {"experiment", "store", "report", "theory", "sim", "selectors", "protocol"},
    "report": set(),
    "flower": {"protocol", "arguments"},
    "__main__": {"cli"},
    "cli": {"selectors", "sim", "theory", "experiment", "store", "comparison", "paper", "report", "flower"},
}


def part(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            whole = node.module == "fedpick"
            yield from (f"fedpick.{alias.name}" for alias in node.names) if whole else [node.module]


def test_the_import_table_holds():
    seen = set()
    for path in sorted(SOURCE.rglob("*.py")):
        if part(path) == "__init__":
            continue
        seen.add(part(path))
        allowed = MAY_IMPORT[part(path)] | {part(path), "pytrees", "measures"}
        ours = {name.split(".")[1] for name in imports(path) if name.startswith("fedpick.")}
        assert ours <= allowed, f"{path.relative_to(SOURCE)} imports {sorted(ours - allowed)}"
        assert "fedpick" not in imports(path), f"{path.relative_to(SOURCE)} imports the whole package"
    assert {"protocol", "sampling", "ledger", "selectors", "checks"} <= seen


def test_import_fedpick_brings_neither_flower_nor_plotting_nor_data():
    heavy = ["flwr", "altair", "matplotlib", "pandas", "sklearn", "torch", "urllib.request", "typer", "rich"]
    code = f"import sys, fedpick; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_file_has_a_second_subject():
    lines = {path.relative_to(SOURCE): len(path.read_text().splitlines()) for path in SOURCE.rglob("*.py")}
    assert not {path for path, number in lines.items() if number > 300}


def test_no_public_name_is_also_a_module():
    import fedpick

    modules = {path.stem for path in SOURCE.glob("*.py")} | {path.name for path in SOURCE.iterdir() if path.is_dir()}
    assert not modules & set(fedpick.__all__)  # whichever is imported last would hide the other
    for name in fedpick.__all__:
        assert getattr(fedpick, name) is not None
