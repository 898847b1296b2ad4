"""The rule of the fuzzer: every input ends in a result or in one sentence of ours, soon; nothing changes silently."""

import copy
import logging
import re
import time
import traceback
import warnings
from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SLOWEST = 60.0  # seconds for one input
SENTENCE = re.compile(r"[A-Za-z_][\w.()-]*( [\w'./-]+){0,3}: ")  # it begins with whom it comes from
NASTY = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.5, 1e-300, 1e300),
    *(float("nan"), float("inf"), -float("inf"), "", "a", "rand", "inf", "nan", "\0", "ü\n\x1b[2J", "[/x]", "a" * 3000),
    *("../../etc/passwd", "os:system", "nowhere:Mine", "fedpick.sim:Local", "json:loads", "1e3", "=", "a.b", b"bytes"),
    *([], [1, 2], [[1], [1, 2]], ["a", 1], [None], [float("nan")], {}, {"kind": "rand"}, {"kind": 3}, {"a": {"a": 1}}),
    *([0.5] * 50, [{"kind": "rand", "m": 1}, {"kind": "full"}], [[]], {"": ""}, (), (1, 2), {1: 2}, 1j),
]


def nasty(plain=False):
    """Values that nobody expects; ``plain`` leaves out what TOML and JSON cannot hold."""
    some = [value for value in NASTY if not plain or is_plain(value)]
    return st.sampled_from(some).map(copy.deepcopy) | st.integers(-5, 2**33) | st.floats(width=32) | st.text(max_size=8)


def is_plain(value):
    if isinstance(value, dict):
        return all(isinstance(key, str) and is_plain(part) for key, part in value.items())
    if isinstance(value, list):
        return all(map(is_plain, value))
    return isinstance(value, str | bool | int | float) and not (isinstance(value, int) and abs(value) > 2**64)


@st.composite
def changed(draw, tables, values, numbers=(1, 2, 3)):
    """One of these documents with a few changes: a value replaced, removed, renamed, or put into a list or a table."""
    document = copy.deepcopy(draw(st.sampled_from(tables)))
    for _ in range(draw(st.sampled_from(numbers))):
        where = document
        while True:
            names = list(where) if isinstance(where, dict) else list(range(len(where)))
            if not names:
                break
            name = draw(st.sampled_from(names))
            inner = where[name]
            if isinstance(inner, dict | list) and draw(st.booleans()):
                where = inner
                continue
            how = draw(st.sampled_from(["replace"] * 4 + ["remove", "rename", "list", "table", "nest"]))
            if how == "replace":
                where[name] = draw(values)
            elif how == "remove":
                del where[name]
            elif how == "rename" and isinstance(where, dict):
                where[draw(st.sampled_from(["a", "a.b", "kind", "", "m", "ü"]))] = where.pop(name)
            elif how == "list":
                where[name] = [inner, draw(values)]
            elif how == "table":
                where[name] = {"kind": inner}
            else:
                for _ in range(draw(st.sampled_from([3, 40, 400]))):
                    inner = [inner]
                where[name] = inner
            break
    return document


@st.composite
def damaged(draw, content):
    """Bytes with a bit flipped, a part cut off, left out, doubled, zeroed or replaced."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 2))):
        place, length = draw(st.integers(0, max(0, len(found) - 1))), draw(st.sampled_from([1, 2, 8, 100]))
        how = draw(st.sampled_from(["flip"] * 4 + ["cut", "leave out", "double", "zero", "random"]))
        if how == "flip" and found:
            found[place] ^= 1 << draw(st.integers(0, 7))
        elif how == "cut":
            del found[place:]
        elif how == "leave out":
            del found[place : place + length]
        elif how == "double":
            found[place:place] = found[place : place + length]
        elif how == "zero":
            found[place : place + length] = bytes(len(found[place : place + length]))
        else:
            found[place : place + length] = draw(st.binary(max_size=length))
    return bytes(found)


def fuzz(strategy, check, number, *, refused=(ValueError, OSError, ModuleNotFoundError), unsigned=()):
    """Check so many inputs; all that break the rule are told at the end, one of each kind.

    ``check`` is called with each. It returns nothing, or raises one of ``refused`` with a sentence that says whom it
    is from; ``unsigned`` are beginnings of other sentences that are allowed.
    """
    outcomes, broken = Counter(), {}

    @settings(
        max_examples=max(1, int(number)),
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def each(value):
        shown, began, key, why = None, time.monotonic(), None, ""
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                shown = repr(value)[:600]
                check(value)
                outcomes["result"] += 1
        except refused as error:
            lines = str(error).split("\n")
            outcomes["sentence"] += 1
            if not all(SENTENCE.match(line) or line.startswith(tuple(unsigned)) for line in lines) or len(lines) > 20:
                key, why = ("no sentence", _place(error)), f"{type(error).__name__}: {str(error)[:300]}"
            elif max(map(len, lines)) > 1500:
                key, why = ("long sentence", _place(error)), str(error)[:300]
        except (Exception, RecursionError) as error:
            key, why = (type(error).__name__, _place(error)), f"{type(error).__name__}: {str(error)[:300]}"
        if time.monotonic() - began > SLOWEST:
            key, why = ("slow", shown), f"{time.monotonic() - began:.0f} s"
        if key is not None:
            outcomes["broken"] += 1
            broken.setdefault(key, f"{why}\n    at {key[1]}\n    with {shown}")

    logging.disable(logging.WARNING)
    try:
        each()
    finally:
        logging.disable(logging.NOTSET)
    told = f"{sum(outcomes.values()) - outcomes['broken']} inputs: {dict(outcomes)}"
    print(told)
    assert not broken, told + "".join(f"\n{place}. {text}" for place, text in enumerate(broken.values(), 1))
    return outcomes


def _place(error):
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/fedpick/" in frame.filename] or frames
    return f"{ours[-1].filename.split('/fedpick/')[-1]}:{ours[-1].lineno}"
