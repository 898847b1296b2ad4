"""Data of one's own in .npz and .csv, and idx files: a federation or one sentence, and nothing is unpickled."""

import gzip
import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import strategies as st
from support.fuzz import damaged, fuzz

from fedpick.sim import IID, Arrays
from fedpick.sim.downloads import parse_idx

ROWS = 12
DTYPES = [
    "f4",
    "f8",
    "f2",
    "i1",
    "u1",
    "i4",
    "i8",
    "u8",
    "?",
    "c8",
    "M8[D]",
    "m8[s]",
    "S3",
    "U2",
    "i4,f4",
    ">f4",
    "O",
    "V3",
    "f16",
]
SHAPES = [(ROWS,), (ROWS, 2), (ROWS, 2, 2), (), (0,), (0, 2), (ROWS, 0), (ROWS - 1,), (1,), (2, ROWS)]
NAMES = [
    "x",
    "y",
    "client",
    "test_x",
    "test_y",
    "label",
    "user",
    "X",
    "image",
    "test_",
    "a/b",
    "",
    "../up",
    "pixel0",
    "\0",
]
FILLS = [0, 1, 3, -1, 255, np.nan, np.inf, 1e300]


@st.composite
def an_array(draw):
    shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
    numbers = np.arange(int(np.prod(shape))) % draw(st.sampled_from([1, 2, 3, 5])) + draw(
        st.sampled_from([0, 0, 0, 2**40])
    )
    values = numbers.reshape(shape)
    with np.errstate(all="ignore"):
        fill = draw(st.none() | st.sampled_from(FILLS))
        values = values if fill is None else np.where(values == 0, fill, values)
        try:
            return values.astype(dtype)
        except (TypeError, ValueError, OverflowError):
            return np.zeros(shape, dtype)


@st.composite
def an_archive(draw):
    """The bytes of an .npz of good arrays, some of them replaced, and of others."""
    arrays = {"x": np.ones((ROWS, 2), np.float32), "y": np.arange(ROWS) % 3, "client": np.arange(ROWS) % 4}
    if draw(st.booleans()):
        arrays |= {"test_x": np.ones((4, 2), draw(st.sampled_from(["f4", "u1"]))), "test_y": np.arange(4) % 3}
    for _ in range(draw(st.integers(0, 3))):
        arrays[draw(st.sampled_from(NAMES))] = draw(an_array())
    for name in draw(st.lists(st.sampled_from(list(arrays)), max_size=1)):
        del arrays[name]
    content, kind = io.BytesIO(), draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED]))
    with zipfile.ZipFile(content, "w", kind) as file:
        for name, values in arrays.items():
            entry = io.BytesIO()
            np.save(entry, values, allow_pickle=True)
            file.writestr(f"{name.replace(chr(0), 'zero')}.npy", entry.getvalue())
    return content.getvalue()


class Unpickled:
    """What says so when it is unpickled."""

    ran = False

    def __reduce__(self):
        return (setattr, (Unpickled, "ran", True))


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # of zipfile, which closes what is broken
def test_npz(total, tmp_path):
    def check(case):
        content, partition = case
        (tmp_path / "own.npz").write_bytes(content)
        federation = Arrays(str(tmp_path / "own.npz"), partition).federation()
        assert np.isfinite(np.asarray(federation.x, np.float64)).all()
        assert int(federation.count.sum()) == federation.num_samples

    whole = an_archive()
    cases = st.tuples(whole | whole.flatmap(damaged), st.none() | st.just(IID(3)))
    outcomes = fuzz(cases, check, 0.07 * total)
    assert outcomes["result"] > 0.05 * outcomes["sentence"]
    (tmp_path / "own.npz").write_bytes(pickle.dumps(Unpickled()))
    fuzz(st.just(((tmp_path / "own.npz").read_bytes(), None)), check, 1)
    assert not Unpickled.ran


def test_csv(total, tmp_path):
    lines = ["rain,wind,label,user", *(f"{i / 7:.3f},{i},{'ab'[i % 2]},u{i % 3}" for i in range(ROWS))]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    good = (tmp_path / "own.csv").read_bytes()

    def check(content):
        (tmp_path / "own.csv").write_bytes(content)
        Arrays(str(tmp_path / "own.csv")).federation()

    fuzz(damaged(good), check, 0.03 * total)


def test_idx(total):
    head = bytes([0, 0, 8, 3]) + np.array([5, 2, 2], ">i4").tobytes()
    plain = head + bytes(range(20))

    def check(content):
        array = parse_idx(content, "images")
        assert array.dtype == np.uint8

    compressed = gzip.compress(plain)
    cases = damaged(compressed) | damaged(plain).map(lambda content: gzip.compress(content, 1)) | st.binary(max_size=40)
    fuzz(cases, check, 0.1 * total)
