"""No command overwrites a file that is not fedpick's, and says so before anything is played."""

import json
import struct
import sys
import zlib

import pytest
from typer.testing import CliRunner

from fedpick.cli import app
from fedpick.report import Chart, dot, page, picture
from fedpick.storage import is_own, write_atomic
from fedpick.storage.ownership import MARKS

SMALL = ("quadratic", "--strategies", "rand,pow-d", "--rounds", "4", "--seeds", "2", "-q")
CHART = Chart("one", "dots", title="One", text="One dot.", rows=(dot("ours", "", "rand", value=1, low=0, high=2),))


def fedpick(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.mark.parametrize("mine", ['{"mine": 1}', "a text of mine", '{"answer"', "{"])
@pytest.mark.parametrize(
    ("command", "name"),
    [
        (("compare", *SMALL), "report.html"),
        (("compare", *SMALL), "summary.json"),
        (("federate", "--shared-loopback"), "summary.json"),
        (("paper", "fig6", "--quick"), "paper.html"),
        (("paper", "fig6", "--quick"), "reproduction.md"),
        (("paper", "fig6", "--quick"), "figures/figure1.svg"),
        (("arena", "--families", "quadratic"), "arena.md"),
        (("arena", "--families", "quadratic"), "arena.html"),
        (("arena", "--families", "quadratic"), "arena.json"),
        (("map", "--families", "quadratic", "--cells", "1"), "map.csv"),
    ],
)
def test_a_file_of_the_user_s_is_not_overwritten(command, name, mine, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["fedpick.cli.federate"], "take_loopback", lambda: None)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(mine)
    done = fedpick(*command, "-o", tmp_path)
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    rule = "must be fedpick's to be written again, and is not; move it away, or choose another folder"
    assert done.stderr == f"{command[0]}: {tmp_path / name.split('/')[0]} {rule}\n"
    assert (tmp_path / name).read_text() == mine
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("command", "name"), [(("map", "--docs"), "when-it-pays.md"), (("paper", "fig6", "--docs"), "reproduction.md")]
)
def test_documentation_of_the_user_s_is_not_overwritten(command, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("mine")
    done = fedpick(*command, tmp_path)
    assert (done.exit_code, (tmp_path / name).read_text()) == (1, "mine")
    assert "must be fedpick's to be written again" in done.stderr


def test_a_report_overwrites_no_file_of_the_user_s_and_a_damaged_summary_is_made_again(tmp_path):
    assert fedpick("compare", *SMALL, "-o", tmp_path).exit_code == 0
    whole = (tmp_path / "summary.json").read_text()
    (tmp_path / "summary.json").write_text(whole[: len(whole) // 2])
    assert fedpick("compare", *SMALL, "-o", tmp_path).exit_code == 0
    assert json.loads((tmp_path / "summary.json").read_text())["answer"] == json.loads(whole)["answer"]
    for name in ("summary.json", "report.html"):
        kept = (tmp_path / name).read_bytes()
        (tmp_path / name).write_text("mine")
        done = fedpick("report", tmp_path, "--where", "rounds=4")
        assert (done.exit_code, (tmp_path / name).read_text()) == (1, "mine")
        assert f"report: {tmp_path / name} must be fedpick's to be written again" in done.stderr
        (tmp_path / name).write_bytes(kept)


def test_an_earlier_comparison_takes_the_place_of_no_page_of_the_user_s(tmp_path):
    assert fedpick("compare", *SMALL, "-o", tmp_path).exit_code == 0
    (tmp_path / "comparisons").mkdir()
    (tmp_path / "comparisons" / "quadratic.html").write_text("mine")
    assert fedpick("compare", *("5" if part == "4" else part for part in SMALL), "-o", tmp_path).exit_code == 0
    assert (tmp_path / "comparisons" / "quadratic.html").read_text() == "mine"
    assert (tmp_path / "comparisons" / "quadratic-2.html").exists()


@pytest.mark.parametrize("kind", ["svg", "pdf", "png", "html"])
def test_a_drawing_is_drawn_again_and_a_picture_of_the_user_s_is_not(kind, tmp_path):
    path = tmp_path / f"mine.{kind}"
    path.write_text("mine")
    done = fedpick("data", "draw", "-o", path)
    rule = "output must be a new file, or one that fedpick drew before"
    assert done.stderr == f"data: {rule}, got {str(path)!r}, which is another one\n"
    assert path.read_text() == "mine"
    path.unlink()
    for _ in range(2):
        assert fedpick("data", "draw", "-o", path).exit_code == 0


def test_the_page_of_a_comparison_is_not_drawn_over(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(page("A comparison", []))
    (tmp_path / "summary.json").write_text("{}")
    done = fedpick("data", "draw", "-o", path)
    rule = "output must be another file than the page of a comparison"
    assert done.stderr == f"data: {rule}, got {str(path)!r}\n"
    assert path.read_text() == page("A comparison", [])


def test_the_mark_leaves_a_png_whole():
    content, place, chunks = picture(CHART, "png"), 8, {}
    while place < len(content):
        (length,) = struct.unpack_from(">I", content, place)
        chunk = content[place + 4 : place + 8 + length]
        assert struct.unpack_from(">I", content, place + 8 + length) == (zlib.crc32(chunk),)
        chunks[chunk[:4]], place = chunk[4:], place + 12 + length
    assert list(chunks)[-2:] == [b"tEXt", b"IEND"]
    assert chunks[b"tEXt"] == b"Software\0fedpick"


def test_what_is_empty_may_be_overwritten_and_a_folder_may_not(tmp_path):
    for name in (name if name[0] != "." else f"picture{name}" for name in MARKS):
        assert is_own(write_atomic(tmp_path / name, "", owner="test"))
        assert not is_own(write_atomic(tmp_path / name, "mine", owner="test"))
    assert not is_own(tmp_path)


@pytest.mark.parametrize(
    "name", ["report.html", "arena.html", "paper.html", "mine.html", "mine.svg", "mine.pdf", "a.md"]
)
def test_a_file_of_the_user_s_that_speaks_of_fedpick_is_the_user_s(name, tmp_path):
    text = (
        "<html><head><title>How we use fedpick</title></head><body><!-- fedpick --> % fedpick\nSoftware</body></html>"
    )
    assert not is_own(write_atomic(tmp_path / name, text, owner="test"))
