"""Everything that goes to disk: atomic writes, one state format, one folder of runs, and where results come from."""

from fedpick.storage.atomic import atomic_file, write_atomic
from fedpick.storage.cache import cache_folder, cached_text
from fedpick.storage.code import forget_outdated, sources_of, sum_of_code, sums_of_files
from fedpick.storage.journal import Journal
from fedpick.storage.locks import acquired
from fedpick.storage.ownership import check_own, is_own, is_table_of_runs
from fedpick.storage.provenance import Provenance, device, file_sha256, plain_numbers, usable_cores, versions
from fedpick.storage.run_store import RunStore, StoredRun
from fedpick.storage.spending import spend
from fedpick.storage.state import ForeignStateError, State, StateError, load_state, save_state

__all__ = [
    "ForeignStateError",
    "Journal",
    "Provenance",
    "RunStore",
    "State",
    "StateError",
    "StoredRun",
    "acquired",
    "atomic_file",
    "cache_folder",
    "cached_text",
    "check_own",
    "device",
    "file_sha256",
    "forget_outdated",
    "is_own",
    "is_table_of_runs",
    "load_state",
    "plain_numbers",
    "save_state",
    "sources_of",
    "spend",
    "sum_of_code",
    "sums_of_files",
    "usable_cores",
    "versions",
    "write_atomic",
]
