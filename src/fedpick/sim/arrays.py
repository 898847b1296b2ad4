"""Your own data from a file or folder: a row per sample."""

import hashlib
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

from fedpick.sim.federation import Federation
from fedpick.sim.files import files_of, read_table
from fedpick.sim.partition import Partition
from fedpick.sim.samples import Reading, make_federation
from fedpick.storage import file_sha256
from fedpick.text import shown
from fedpick.validation import check_function, check_path, check_texts, flag, require


@dataclass(frozen=True)
class Arrays:
    """Your own data, a row per sample: an ``.npz``, ``.csv``, ``.tsv``, ``.parquet``, ``.arrow`` or LEAF's json.

    Or a folder, as LEAF has it or as Hugging Face's ``save_to_disk`` writes it.

    Clients and labels may have any names, and keep them. Bytes are taken for pixels, unless they are codes. An ``.npz``
    holds x, y and client, and test_x, test_y where there is a test set.

    Args:
        path: The file or folder.
        partition: How the samples are dealt out, where no column says who holds them.
        test_share: Where the file has no test set, the share of every client's samples that becomes it.
        seed: What the test set is drawn by.
        codes: Whether bytes are codes, such as characters, and not pixels.
        x: Columns of inputs, or patterns such as "pixel*"; by default all other columns of numbers.
        y: The column of labels; by default one called y, label, target ..., or the last.
        client: The column of clients; by default one called client, user, device ...
        standardize: Whether inputs are brought to mean 0 and standard deviation 1 over the training data.

    >>> Arrays("mine.npz").test_share
    0.1
    """

    path: str
    partition: Partition | None = None
    test_share: float = 0.1
    _: KW_ONLY
    seed: int = 0
    codes: bool = False
    x: tuple[str, ...] = ()
    y: str = ""
    client: str = ""
    standardize: bool = False

    def __post_init__(self) -> None:
        check_path(self, "path", self.path)
        require(self, "seed", self.seed, "at least 0", lambda n: n >= 0, whole=True, one=True)
        if self.partition is not None:
            check_function(self, "partition", self.partition, "Dirichlet(K=30, alpha=0.3)")
        for name in ("codes", "standardize"):
            flag(self, name, getattr(self, name))
        check_texts(self, y=self.y, client=self.client)
        if not isinstance(self.x, tuple) or not all(isinstance(name, str) for name in self.x):
            raise ValueError(f"Arrays: x must be a tuple of columns, got {shown(self.x)}")
        require(self, "test_share", self.test_share, "at least 0 and below 1", lambda x: (x >= 0) & (x < 1), one=True)

    @property
    def sha256(self) -> str:
        """What the files hold, as a sum: another file of this name is another experiment."""
        files = files_of(self.path)
        if not files[:1] or not files[0].is_file():
            read_table(self.path)  # which says what is missing
        if len(files) == 1:
            return file_sha256(files[0])
        return hashlib.sha256("".join(map(file_sha256, files)).encode()).hexdigest()

    def federation(self) -> Federation:
        how = Reading(
            self.x,
            self.y,
            self.client,
            partition=self.partition,
            test_share=self.test_share,
            seed=self.seed,
            standardize=self.standardize,
            codes=self.codes,
        )
        return make_federation(read_table(self.path), how, name=Path(self.path).name, owner=f"Arrays: {self.path!r}")
