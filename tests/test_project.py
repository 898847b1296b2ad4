"""What stands around the code: workflows, issue forms, citation and metadata parse and agree with one another."""

import ast
import importlib.metadata
import re
import sys
import tomllib
from pathlib import Path

import pytest

import fedpick

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config")


def steps(workflow):
    return [step for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"]]


def lowest(package):
    """The lower bound of a package in pyproject.toml."""
    wanted = [*PROJECT["dependencies"], *(one for extra in PROJECT["optional-dependencies"].values() for one in extra)]
    pattern = rf"{package}>=([\d.]+)(,<\d+)?"
    (bound,) = {found[1] for one in wanted if (found := re.fullmatch(pattern, one))}
    return bound


def test_there_are_workflows_for_tests_docs_and_releases():
    assert set(WORKFLOWS) == {"test", "docs", "release"}
    for workflow in WORKFLOWS.values():
        assert workflow["permissions"] == {"contents": "read"}
        assert all("timeout-minutes" in job for job in workflow["jobs"].values())
    assert any(step.get("run", "").startswith("make docs") for step in steps("docs"))


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS))
def test_actions_are_pinned_by_major_version(workflow):
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    assert all(re.search(r"@(release/)?v\d+$", action) for action in used), used


def test_the_tests_run_on_every_python_that_the_metadata_names():
    matrix = WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"]
    named = [one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    assert matrix == named == ["3.11", "3.12", "3.13", "3.14"]
    assert PROJECT["requires-python"] == f">={matrix[0]}"


def test_the_oldest_and_the_newest_jax_and_flwr_are_tested():
    oldest, newest = WORKFLOWS["test"]["jobs"]["dependencies"]["strategy"]["matrix"]["include"]
    assert oldest["python"] == PROJECT["requires-python"].removeprefix(">=")
    pins = dict(pin.split("==") for pin in oldest["packages"].split())
    assert {name: re.sub(r"(\.0)+$", "", pin) for name, pin in pins.items()} == {
        name: lowest(name) for name in ("jax", "flwr")
    }
    assert newest["packages"].split() == ["--upgrade", "jax", "jaxlib", "flwr"]


def test_a_release_is_published_by_trust_and_only_under_its_own_version():
    (publish,) = (job for job in WORKFLOWS["release"]["jobs"].values() if "id-token" in job.get("permissions", {}))
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["needs"] == "build"
    assert publish["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    (check,) = (step["run"] for step in steps("release") if "__version__" in step.get("run", ""))
    assert 'test "$GITHUB_REF_NAME" = "v$version"' in check
    assert f"## [{fedpick.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_an_issue_form_has_what_github_asks_for(path):
    form = yaml.safe_load(path.read_text())
    assert {"name", "description", "body"} <= set(form)
    kinds = {"markdown", "textarea", "input", "dropdown", "checkboxes"}
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert {field["type"] for field in form["body"]} <= kinds
    assert len({field["id"] for field in fields}) == len(fields) > 2
    assert all(field["attributes"]["label"] for field in fields)
    for field in fields:
        if field["type"] == "dropdown":
            assert all(isinstance(option, str) for option in field["attributes"]["options"])  # not Yes: true


def test_a_strategy_is_proposed_with_paper_formula_needs_reference_and_claim():
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / "strategy_proposal.yml").read_text())
    fields = {field.get("id") for field in form["body"]}
    assert {"paper", "formula", "needs", "reference", "claim"} <= fields


def test_the_citation_has_the_software_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)  # what the format requires
    assert citation["version"] == fedpick.__version__
    assert citation["license"] == PROJECT["license"]
    assert citation["repository-code"] == PROJECT["urls"]["Repository"]
    assert [author["name"] for author in citation["authors"]] == [author["name"] for author in PROJECT["authors"]]
    (paper,) = citation["references"]
    assert {"type", "title", "authors", "year", "url"} <= set(paper)
    assert "2010.01243" in paper["url"]


def test_the_hooks_are_the_tools_of_make_check():
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert local["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text()
    tools = [hook["entry"].split()[0].rpartition("/")[2] for hook in local["hooks"]]
    assert tools == ["ruff", "ruff", "mypy"]
    assert all(f"$(BIN)/{tool}" in makefile for tool in tools)


def test_on_the_package_index_every_link_of_readme_is_whole():
    text = (ROOT / "README.md").read_text()
    for change in PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(change["pattern"], change["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert any(link.endswith(".png") and link.startswith("https://raw.") for link in links)
    assert all(link.startswith("https://") for link in links)
    repository = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    assert all(repository in link for link in links if "$HFPR_VERSION" in link)


def test_the_demo_installs_what_it_needs_and_no_more():
    makefile = (ROOT / "Makefile").read_text()
    light = makefile.partition(".venv/light:")[2].partition("\n\n")[0]
    assert "demo: .venv/light" in makefile
    assert "$(call install,.)\n" in light
    heavy = ("ray", "mlflow", "playwright", "sphinx", "flwr", "pandas", "polars")
    assert not [each for each in PROJECT["dependencies"] if each.lower().startswith(heavy)]


def test_what_is_imported_at_once_is_declared():
    """A package that only another one brings is there until that one no longer does, as click was with typer."""
    distributions = importlib.metadata.packages_distributions()
    plain = re.compile(r"[A-Za-z0-9_.-]+")
    declared = {plain.match(line)[0].lower().replace("_", "-") for line in PROJECT["dependencies"]}
    rooms = [path for path in (ROOT / "src" / "fedpick").rglob("*.py") if "flower" not in path.parts]
    for path in rooms:
        for node in ast.parse(path.read_text()).body:  # those inside of functions are of extras
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            for module in {name.split(".")[0] for name in names} - sys.stdlib_module_names - {"fedpick"}:
                found = {name.lower().replace("_", "-") for name in distributions[module]}
                assert found & declared, f"{path.name} imports {module}, which pyproject.toml does not name"


def test_every_extra_is_installed_by_a_line_of_the_docs():
    text = (ROOT / "docs" / "quick-start.md").read_text()
    extras = set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    assert all(f"`{extra}`" in text for extra in extras)
    assert "`pip install '.[flower]'`" in text
