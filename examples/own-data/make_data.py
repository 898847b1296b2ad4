"""Make shops.npz: what a federation of your own data looks like on disk.

    python examples/own-data/make_data.py [FILE]

Forty shops tell from four measurements which of three things a customer will buy; each shop has customers of its own
kind, and some have many more than others.
"""

import sys
from pathlib import Path

import numpy as np


def main() -> None:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("shops.npz")
    rng = np.random.default_rng(0)
    shops = np.array([f"shop-{k:02d}" for k in range(40)])
    client = np.repeat(shops, rng.lognormal(4, 0.7, 40).astype(int) + 20)
    place = np.searchsorted(shops, client)
    x = rng.normal(size=(len(client), 4)) + rng.normal(0, 1.5, (40, 4))[place]
    taste = np.array([[2.0, -1.0, 0.0, 1.0], [-1.0, 2.0, 1.0, 0.0], [0.0, 0.0, -2.0, -1.0]])
    y = np.argmax(x @ taste.T + rng.normal(0, 0.5, (len(client), 3)), axis=1)
    np.savez(path, x=x.astype(np.float32), y=y, client=client)  # clients may have any names
    print(f"{path}: {len(y)} samples of {len(shops)} clients")


if __name__ == "__main__":
    main()
