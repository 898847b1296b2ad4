"""A Flower app as its folder describes it."""

import hashlib
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpick import config
from fedpick.registry import nearest
from fedpick.storage import file_sha256, is_table_of_runs
from fedpick.text import brief, shown

# What an app is made of: its code, its settings, and data that lie beside them.
SOURCES = (".py", ".toml", ".json", ".yaml", ".yml", ".csv", ".tsv", ".txt", ".npy", ".npz", ".parquet", ".arrow")
LARGE = 1 << 28  # bytes from which on a file is known by its size and its time
WRITTEN = ("runs", "comparisons", "findings", "leases", "state", "under-way")  # where runs are stored, beside pages
CLIENTS = 10  # where nothing says how many


@dataclass(frozen=True)
class App:
    """A Flower app.

    Args:
        folder: Its folder.
        name: Its name.
        server: The address of its ServerApp, such as "quickstart.server_app:app".
        client: The address of its ClientApp.
        settings: Its run config, flat, as clients and server see it.
        clients: The number of clients of its local simulation; None where it does not say.
        digest: A checksum of its files.
        sums: The checksums of each of them, by its name in the folder.
    """

    folder: Path
    name: str
    server: str
    client: str
    settings: dict[str, Any]
    clients: int | None
    digest: str
    sums: dict[str, str]

    def with_settings(self, settings: Sequence[str]) -> dict[str, Any]:
        """The run config with these settings, such as "batch-size=32", in place of the app's own.

        Args:
            settings: The settings, each of which must be one that the app has.
        """
        found = dict(self.settings)
        for setting in settings:
            given: dict[str, Any] = {}
            config.override(given, setting, "compare")
            for path, value in config.leaves(given).items():
                if path not in found:
                    rule = f"must be in the app's run config ({', '.join(found) or 'which is empty'})"
                    raise ValueError(f"compare: --set {path} {rule}{nearest(path, found)}")
                wanted, known = type(found[path]), found[path]
                if isinstance(known, float) and isinstance(value, int) and not isinstance(value, bool):
                    value = float(value)
                if not isinstance(value, wanted) or isinstance(value, bool) != isinstance(known, bool):
                    rule = f"must be of the type of the app's own, {known!r}"
                    raise ValueError(f"compare: --set {path} {rule}, got {shown(value)}")
                found[path] = value
        return found


def read_app(folder: str | Path) -> App:
    """The Flower app in a folder.

    Args:
        folder: A folder with the pyproject.toml of a Flower app.
    """
    folder = Path(folder).expanduser().resolve()
    if folder.name == "pyproject.toml":
        folder = folder.parent
    file = folder / "pyproject.toml"
    if not file.is_file():
        why = "which has none" if folder.is_dir() else "which is no folder"
        raise ValueError(
            f"compare: --app must be a folder with the pyproject.toml of a Flower app, got {folder}, {why}"
        )
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"compare: {file} must be TOML, got an error: {brief(error)}") from None
    flower = project.get("tool", {}).get("flwr", {})
    parts = flower.get("app", {}).get("components", {})
    for part in ("serverapp", "clientapp"):
        if ":" not in str(parts.get(part, "")):
            rule = f'must have {part} = "package.module:app" in [tool.flwr.app.components], as Flower apps do'
            raise ValueError(f"compare: {file} {rule}, got {parts.get(part)!r}")
    sums = _sums(folder)
    return App(
        folder,
        str(project.get("project", {}).get("name", folder.name)),
        parts["serverapp"],
        parts["clientapp"],
        config.leaves(flower.get("app", {}).get("config", {})),
        _clients(flower.get("federations", {})),
        hashlib.sha256("".join(f"{name}\n{each}\n" for name, each in sums.items()).encode()).hexdigest()[:16],
        sums,
    )


def changed_files(app: App) -> list[str]:
    """The files of an app that are not as they were when it was read, by their names in its folder.

    Args:
        app: The app.
    """
    now = _sums(app.folder)
    names = {*app.sums, *now}
    return sorted(name for name in names if app.sums.get(name) != now.get(name))


def _clients(federations: dict[str, Any]) -> int | None:
    """The SuperNodes of the local simulation that older apps describe in their pyproject.toml."""
    tables = {name: table for name, table in federations.items() if isinstance(table, dict)}
    first = tables.get(str(federations.get("default")), {})
    for table in (first, *tables.values()):
        number = table.get("options", {}).get("num-supernodes")
        if isinstance(number, int):
            return number
    return None


def _sums(folder: Path) -> dict[str, str]:
    """Checksums of an app's files, so that runs of an app that was changed are not taken for its own."""
    found = {}
    for path in _sources(folder):
        about = path.stat()
        small = about.st_size < LARGE
        name = path.relative_to(folder).as_posix()
        found[name] = file_sha256(path) if small else f"{about.st_size} {about.st_mtime_ns}"
    return found


def _sources(folder: Path) -> Iterator[Path]:
    """The files that an app is made of; not what a comparison has written beside them."""
    written = WRITTEN if _has_runs(folder) else ()
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "__pycache__")) or path.name in written:
            continue
        if _has_runs(path) and not any(path.glob("*.py")):
            continue
        if path.is_dir() and not (path / "pyvenv.cfg").is_file():
            yield from _sources(path)
        elif path.is_file() and path.suffix in SOURCES and path.name != "summary.json" and not is_table_of_runs(path):
            yield path


def _has_runs(folder: Path) -> bool:
    """Whether runs of ours are stored here; other programs have folders called "runs", too."""
    if not (folder / "runs").is_dir():
        return False
    return (folder / "lock").is_file() or any((folder / "runs").glob("*/experiment.json"))
