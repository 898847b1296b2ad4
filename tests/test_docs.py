"""The documentation is true: its code runs, links lead somewhere, messages exist, and every public name is in it."""

import ast
import contextlib
import dataclasses
import functools
import gzip
import importlib
import inspect
import json
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

import fedpick

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fedpick"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
API = sorted((ROOT / "docs" / "api").glob("*.md"))
LINKED = [
    *PAGES,
    *API,
    *sorted((ROOT / "docs" / "reproduction").glob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "examples").rglob("README.md")),
]
LINKED += sorted((ROOT / "examples").glob("*.ipynb"))


@functools.cache
def prose(page):
    """The Markdown of a page or notebook without its code."""
    text = page.read_text()
    if page.suffix == ".ipynb":
        cells = json.loads(text)["cells"]
        text = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    return re.sub(r"^(```+).*?^\1$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def anchors(page):
    """What GitHub calls the headings of a page."""
    found = set()
    for heading in re.findall(r"^#{1,6} +(.*?) *$", prose(page), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        again = (f"{anchor}-{number}" for number in range(1, 100))
        found.add(anchor if anchor not in found else next(name for name in again if name not in found))
    return found


@pytest.mark.parametrize("page", LINKED, ids=lambda page: page.name)
def test_every_link_between_files_leads_somewhere(page):
    text = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", prose(page))
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        goal = (page.parent / path).resolve() if path else page
        if not goal.exists() or not goal.is_relative_to(ROOT):
            broken.append(f"{link}: there is no such file")
        elif anchor and anchor not in anchors(goal):
            broken.append(f"{link}: there is no such heading")
    assert not broken, "\n".join(broken)


HEAVY = (
    "availability-and-costs.md",
    "faq.md",
    "own-data.md",
    "protocol.md",
    "simulator.md",
    "trust.md",
)  # in make test-all


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=[pytest.mark.slow] * (page.name in HEAVY)) for page in PAGES],
    ids=lambda page: page.name,
)
def test_the_code_on_the_page_runs(page):
    session = {"__name__": page.stem}
    for block in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
        line = page.read_text()[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), session)


def table_of_strategies(page):
    rows = re.findall(r"^\| `([a-z-]+)` \| (.*) \|$", page.read_text(), re.MULTILINE)
    return {
        name: tuple(cell.strip() for cell in cells.split(" | ")) for name, cells in rows if name in fedpick.STRATEGIES
    }


def test_the_tables_of_strategies_are_the_table():
    rows = fedpick.STRATEGIES
    short = table_of_strategies(ROOT / "README.md")
    assert short == {name: (row.picks, row.reference) for name, row in rows.items()}
    costs = table_of_strategies(ROOT / "docs" / "strategies.md")
    assert costs == {
        name: (row.polled, needs, row.messages, row.traffic, work)
        for name, row in rows.items()
        for needs, work in [fedpick.registry.demands(name).texts]
    }
    assert list(short) == list(costs) == list(rows)


# Rooms and modules that users import from; the command line is for the shell.
ROOMS = sorted(path.parent.name for path in SOURCE.glob("[a-z]*/__init__.py") if path.parent.name != "cli")
MODULES = ["registry", "flower.client"]
PUBLIC = ["fedpick", *(f"fedpick.{name}" for name in (*ROOMS, *MODULES))]


@functools.cache
def documented():
    """The modules whose members the API pages list, and the single names that they describe."""
    text = "\n".join(page.read_text() for page in API)
    modules = re.findall(r"^\.\. automodule:: (\S+)\n   :members:$(?!\n   :exclude)", text, re.MULTILINE)
    return set(modules), set(re.findall(r"^\.\. (?:auto|py:)(?:data|type|function|class):: (\S+)", text, re.MULTILINE))


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_api_reference(module):
    modules, names = documented()
    assert module in modules, f"docs/api has no automodule of {module}"
    found = importlib.import_module(module)
    missing = []
    for name in getattr(found, "__all__", ()):
        value = getattr(found, name)
        if inspect.ismodule(value):
            assert value.__name__ in modules
        elif f"{module}.{name}" not in names:
            described = inspect.isroutine(value) or hasattr(value, "__wrapped__")
            own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__ if described else None
            if not own or re.fullmatch(rf"{name}\(.*\)", own):  # what a dataclass without a docstring is given
                missing.append(name)  # automodule leaves out what has no docstring, and all data
    assert not missing, f"{module}: without a docstring, or data that docs/api does not describe: {missing}"


# What has no `Args:`, and why.
WITHOUT_ARGS = {"History": "of a run over Flower: users read it, the strategy makes it"}


def calls(module):
    """What users call of a module, with its parameters and how many of them need no description.

    These are functions, classes and their alternative constructors. Not among them are NamedTuples, which users read,
    protocols, which they implement, exceptions, which they catch, and fields that begin with an underscore.
    """
    found = importlib.import_module(module)
    own = [name for name, value in vars(found).items() if getattr(value, "__module__", "") == module and name[0] != "_"]
    for name in getattr(found, "__all__", own):
        value = getattr(found, name)
        if inspect.isclass(value) and dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value) if field.init and field.name[0] != "_"]
            yield value, fields, 0
            for attribute, member in vars(value).items():
                if isinstance(member, classmethod) and attribute[0] != "_":
                    yield getattr(value, attribute), list(inspect.signature(getattr(value, attribute)).parameters), 1
        elif inspect.isclass(value):
            made = "__init__" in vars(value) and not getattr(value, "_is_protocol", False)
            if made and not issubclass(value, Exception):
                yield value, list(inspect.signature(value).parameters), 0
        elif inspect.isroutine(value) or hasattr(value, "__wrapped__"):
            yield value, list(inspect.signature(value).parameters), 1


@pytest.mark.parametrize("module", [*PUBLIC, "fedpick.protocol", "fedpick.pytrees"])
def test_every_argument_of_what_users_call_is_described(module):
    missing = {}
    for value, parameters, free in calls(module):
        section = re.search(r"^Args:\n((?: +.*\n?|\n)*)", inspect.getdoc(value) or "", re.MULTILINE)
        described = set(re.findall(r"^    \*{0,2}(\w+):", section[1] if section else "", re.MULTILINE))
        name = f"{value.__module__.removeprefix('fedpick.')}.{value.__qualname__}"
        if len(parameters) > free and value.__qualname__ not in WITHOUT_ARGS and set(parameters) - described:
            missing[name] = [one for one in parameters if one not in described]
        unknown = described - set(parameters)
        assert not unknown, f"{name} has no parameter {unknown}"
    assert not missing, "\n".join(f"{name}: {parameters}" for name, parameters in missing.items())


# The federation, the model, the strategy and local training; other rooms have the protocol's and Flower's own orders.
FOUR = {"simulate", "Experiment", "Model", "Liars"}


@pytest.mark.parametrize("room", ["compare", "config", "experiment", "paper", "report", "results", "sim", "theory"])
def test_what_users_call_takes_three_arguments_by_position(room):
    for value, _, _ in calls(f"fedpick.{room}"):
        found = inspect.signature(value).parameters.values()
        positional = [one.name for one in found if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
        assert len(positional) <= (4 if value.__qualname__ in FOUR else 3), f"{value.__qualname__}: {positional}"


def test_the_api_pages_are_all_in_their_index():
    index = (ROOT / "docs" / "api" / "index.md").read_text()
    assert {page.name for page in API} - {"index.md"} == set(re.findall(r"\]\(([a-z]+\.md)\)", index))


@functools.cache
def messages():
    """The texts in the source, whatever is filled in written as a brace."""
    texts = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{" for v in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(re.sub(r"\s+", " ", text) for text in texts)


def test_what_the_faq_quotes_is_said_by_the_program():
    text = re.sub(r"^#.*|`[^`]*`", "", prose(ROOT / "docs" / "faq.md"), flags=re.MULTILINE)
    quotes = {re.sub(r"\s+", " ", quote) for quote in re.findall(r'"([^"]+ [^"]+)"', text)}
    assert len(quotes) >= 3
    assert not {quote for quote in quotes if quote not in messages()}


@pytest.mark.parametrize("page", [ROOT / "CONTRIBUTING.md", ROOT / "docs" / "developer.md"], ids=lambda page: page.name)
def test_the_files_that_are_named_exist(page):
    named = set(re.findall(r"`([\w.][\w./-]*(?:/|\.(?:py|md|yml|json|toml|html)))`", prose(page)))
    known = {path.name for path in SOURCE.rglob("*.py")}
    assert len(named) > 10
    assert not {
        name for name in named if not (ROOT / name).exists() and not (SOURCE / name).exists() and name not in known
    }


def test_the_names_that_are_written_out_exist():
    unknown = set()
    for page in LINKED:
        text = re.sub(r"\]\([^)]*\)", "", prose(page))
        for name in re.findall(r"\bfedpick(?:\.[A-Za-z_]\w*)+(?![\w/])", text):
            module, *parts = name.split(".")
            found = importlib.import_module(module)
            for part in parts:
                with contextlib.suppress(ModuleNotFoundError):  # a module that nothing has imported yet
                    importlib.import_module(f"{found.__name__}.{part}")
                if not hasattr(found, part):
                    unknown.add(f"{page.name}: {name}")
                    break
                found = getattr(found, part)
    assert not unknown


def test_the_page_of_the_protocol_has_every_law_and_every_claim():
    text = (ROOT / "docs" / "protocol.md").read_text()
    laws = text.partition("## The laws")[2].partition("\n## ")[0]
    assert re.findall(r"^(\d+)\. ", laws, re.MULTILINE) == [str(number) for number in fedpick.checks.LAWS]
    assert set(re.findall(r"^\| `(\w+) = True` \|", laws, re.MULTILINE)) == set(fedpick.checks.CLAIMS)


def test_the_page_of_the_command_line_has_every_command_and_only_known_options():
    typer = pytest.importorskip("typer")
    from fedpick.cli import app

    text = (ROOT / "docs" / "command-line.md").read_text()
    commands = typer.main.get_command(app).commands
    assert set(re.findall(r"^\| `fedpick (\w+)", text, re.MULTILINE)) == set(commands)
    assert all(f"`{name}`" in text or f"data {name}`" in text for name in commands["data"].commands)
    known = {
        option
        for one in (*commands.values(), *commands["data"].commands.values())
        for p in one.params
        for option in p.opts
    }
    assert set(re.findall(r"`(--?\w+)", text)) <= {*known, "--help"}


def test_the_commands_in_the_documentation_are_understood():
    typer = pytest.importorskip("typer")
    from fedpick.cli import app

    group, seen = typer.main.get_command(app), 0
    for page in LINKED:
        for block in re.findall(r"^```sh\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in re.findall(r"^fedpick (.*)$", block, re.MULTILINE):
                name, *arguments = shlex.split(line, comments=True)
                command = group.commands[name]
                if hasattr(command, "commands"):
                    name, *arguments = arguments
                    command = command.commands[name]
                command.make_context(name, arguments)  # raises for an option that it does not have
                seen += 1
    assert seen > 20


def test_the_page_of_experiments_has_a_file_that_is_read_and_every_name_of_the_registry():
    text = (ROOT / "docs" / "experiments.md").read_text()
    tables = [tomllib.loads(block) for block in re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]
    (whole,) = (table for table in tables if "rounds" in table)
    assert [one.selector.d for one in fedpick.experiment.from_plain(whole)] == [6, 12]
    roles = ("Data", "Partition", "ModelSpec", "Availability", "Metric", "RateSchedule", "Optimizer")
    names = {name for role in roles for name in fedpick.registry.ROLES[role]}
    assert not {name for name in names if f"`{name}`" not in text}


def test_the_tables_of_liars_are_those_of_what_was_played(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trust = importlib.import_module("trust")
    found = json.loads(gzip.decompress(trust.RESULTS.read_bytes()))["strategies"]
    missing = [name for name in trust.STRATEGIES if name not in found]
    assert not missing, f"python benchmarks/trust.py --strategies {' '.join(missing)} ... (CONTRIBUTING.md) plays them"
    assert list(found) == trust.STRATEGIES
    assert (ROOT / "docs" / "trust-table.md").read_text() == trust.table(found)
    page = (ROOT / "docs" / "trust.md").read_text()
    assert trust.overview(found) in page
    assert trust.summary({name: found[name] for name in trust.IN_DETAIL}) in page


@pytest.fixture
def trust(monkeypatch, tmp_path):
    """The benchmark, over a copy of what is published."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    trust = importlib.import_module("trust")
    for name in ("trust.md", "trust-table.md", "trust-results.json.gz"):
        shutil.copy(ROOT / "docs" / name, tmp_path)
    monkeypatch.setattr(trust, "RESULTS", tmp_path / "trust-results.json.gz")
    return trust


def written(trust, monkeypatch, *arguments):
    """What the benchmark has changed in the docs, and what it says where it ends with a sentence."""

    def texts():
        folder = trust.RESULTS.parent
        return {
            **{path: path.read_text() for path in folder.glob("trust*.md")},
            0: gzip.decompress(trust.RESULTS.read_bytes()),
        }

    before = texts()
    monkeypatch.setattr(sys, "argv", ["trust.py", *map(str, arguments)])
    said = ""
    try:
        trust.main()
    except SystemExit as end:
        said = end.code
    return [path for path, text in texts().items() if text != before[path]], said


def test_liars_against_what_is_published_again_change_nothing(trust, monkeypatch, tmp_path):
    found = json.loads(gzip.decompress(trust.RESULTS.read_bytes()))
    (tmp_path / "found.json").write_text(json.dumps(found))
    assert written(trust, monkeypatch, "--docs", tmp_path / "found.json") == ([], "")
    assert trust.left(found["strategies"]) == {}


@pytest.mark.parametrize("defences", [1, 7])
def test_liars_against_a_strategy_are_in_the_docs_when_all_are_played(defences, trust, monkeypatch, tmp_path):
    found = json.loads(gzip.decompress(trust.RESULTS.read_bytes()))
    rand = dict(list(found["strategies"]["rand"].items())[:defences])
    found["strategies"] = {"full": found["strategies"]["full"], "rand": rand}
    if defences == 7:  # one that was interrupted in the last of them
        del rand["all"]["silent, flip"]
    file = tmp_path / "found.json"
    file.write_text(json.dumps(found))
    played = {1: 13, 7: 90}[defences]
    goes_on = f"python benchmarks/trust.py --strategies rand --draws 8 --json {file} goes on"
    said = f"trust: {played} of the 91 runs of rand are played, and the docs need all of them; {goes_on}"
    assert written(trust, monkeypatch, "--docs", file) == ([], said)


def test_what_liars_cannot_be_played_with_is_one_sentence(trust, monkeypatch, tmp_path):
    (tmp_path / "else.json").write_text('{"strategies": {"rand": [1]}}')
    said = f"trust: {tmp_path / 'else.json'} must be a file that --json of this program wrote, and is something else"
    missing = f"trust: {tmp_path / 'nosuch.json'} cannot be read: No such file or directory"
    (tmp_path / "empty.json").write_text('{"versions": {"fedpick": "0.1.0"}, "strategies": {"rand": {}}}')
    for arguments, sentence in {
        ("--docs", tmp_path / "empty.json"): said.replace("else.json", "empty.json"),
        ("--docs", tmp_path / "nosuch.json"): missing,
        ("--docs", tmp_path / "else.json"): said,
        ("--docs", trust.RESULTS): said.replace("else.json", trust.RESULTS.name),
        ("--json", tmp_path / "else.json"): said,
        ("--draws", 0): "trust: draws must be at least 1, got 0",
        ("--json", "f.json", "--docs", "g.json"): (
            "trust: --json plays and --docs writes the docs of what was played; give one of them"
        ),
    }.items():
        assert written(trust, monkeypatch, *arguments) == ([], sentence)


# What a page prints (its page, how it begins), and the commands that print it, of some seconds each.
PRINTED = [
    ("faq.md", "| Synthetic(1,1), m = 3 |", ["compare --strategies rand,pow-d -d 6 -d 15 -d 30"]),
    ("faq.md", "Nothing beats rand for sure.", ["compare --strategies rand,pow-d --set redraw=true"]),
    ("quick-start.md", "target: loss 0.692", ["compare"]),
    (
        "quick-start.md",
        "mine.npz: 40 clients",
        ["data describe mine.npz", "compare mine.npz", "report comparison --metric loss"],
    ),
]


@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize(("page", "begins", "commands"), PRINTED, ids=[row[2][-1] for row in PRINTED])
def test_what_a_page_prints_comes_out(page, begins, commands, tmp_path, monkeypatch):
    """Another kind of processor may round a last digit differently, and a run then goes another way."""
    testing = pytest.importorskip("typer.testing")
    from fedpick.cli import app

    text = (ROOT / "docs" / page).read_text()
    assert {f"fedpick {command}" for command in commands if command != "compare"} <= {
        line.partition("  #")[0].strip() for line in text.splitlines()
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.argv", ["make_data.py", "mine.npz"])
    runpy.run_path(str(ROOT / "examples" / "own-data" / "make_data.py"), run_name="__main__")
    outputs = []
    for command in commands:
        found = testing.CliRunner().invoke(app, shlex.split(command))
        assert found.exit_code == 0, found.output
        outputs.append(re.sub(r"\s+", " ", found.output))
    printed = " ".join(outputs)
    if begins.startswith("|"):  # some columns of the table that comes out
        rows = text.partition(begins)[2].partition("\n\n")[0].splitlines()[2:]
        for name, *cells in ([cell.strip() for cell in row.strip("| ").split("|")] for row in rows):
            line = re.search(rf" (?:pow-d, )?{name} (\d+ \[.*? \S+) (?=pow-d, d|\S+ wins)", printed)
            assert line, f"{page} has {name}, which does not come out"
            assert not [cell for cell in cells if f" {cell} " not in f" {line[1]} "], f"{cells}, got {line[1]}"
        return
    blocks = re.findall(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (block,) = (block for block in blocks if block.strip().startswith(begins))
    parts = [re.sub(r"\s+", " ", part).strip() for part in block.split("\n...\n")]
    assert not [part for part in parts if part not in printed], printed
