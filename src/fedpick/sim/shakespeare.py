"""Shakespeare's plays by speaking role: texts of the package shakespeare, as sequences of characters."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass

import numpy as np

from fedpick.metrics import Numbers
from fedpick.sim.federation import Federation
from fedpick.sim.installed import Installed
from fedpick.sim.natural import TEST_SHARE, Samples, check_choice, choose_clients
from fedpick.sim.rows import Names
from fedpick.validation import require

PLAYS = (
    "alls_well_that_ends_well", "antony_and_cleopatra", "as_you_like_it", "comedy_of_errors", "coriolanus", "cymbeline",
    "hamlet", "henry_iv_part_1", "henry_iv_part_2", "henry_v", "henry_vi_part_1", "henry_vi_part_2", "henry_vi_part_3",
    "henry_viii", "john", "julius_caesar", "lear", "loves_labours_lost", "macbeth", "measure_for_measure",
    "merchant_of_venice", "merry_wives_of_windsor", "midsummer_nights_dream", "much_ado_about_nothing", "othello",
    "pericles", "richard_ii", "richard_iii", "romeo_and_juliet", "taming_of_the_shrew", "tempest", "timon_of_athens",
    "tragedy_of_titus_andronicus", "troilus_and_cressida", "twelfth_night", "two_gentlemen_of_verona", "winters_tale",
)  # fmt: skip
TEXTS = Installed(
    "shakespeare",
    "0.6",
    tuple(f"shksprdata/texts/{play}_gut.txt" for play in PLAYS),
    "1e4f4c9b4a7010d27d177eea410a36fb5923c05398445cb5fda9020fe6da2d81",
)
ALPHABET = "\n !\"&'(),-.0123456789:;?ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
CODES = np.full(256, len(ALPHABET), np.uint8)  # what is not in the alphabet is left out
CODES[np.frombuffer(ALPHABET.encode(), np.uint8)] = np.arange(len(ALPHABET))
STAGE = re.compile(r"\[[^\]]*\]")  # directions, also over several lines
DIRECTION = re.compile(r"(?:ACT|SCENE|Act|Scene|Enter|Exit|Exeunt|Re-enter|Flourish|Alarum|THE END|Persons)\b")
DIVISION = re.compile(r"(?:ACT|SCENE)\b", re.IGNORECASE)
HEADING = re.compile(r"([A-Z][A-Za-z'&, -]*?(?:\. [A-Za-z&][A-Za-z' .&,]*?)?)\.?:?")
INLINE = re.compile(r"([A-Z][A-Z' ]+)\. +(.+)")
NO_ROLE = re.compile(r"SONG|[IVX]+")
SEEN = 3  # headings that are not in capitals are a role from this many on: others are short lines of verse


@dataclass(frozen=True)
class Shakespeare:
    """The next character in the lines of a speaking role, as in LEAF: 37 plays (``shakespeare``), a role a client.

    x: ``length`` characters as codes, for ``CharLSTM`` or ``Transformer``; y: the one that follows. Directions are left
    out. The first four fifths of what a role says, in the order of the play, are training data, the rest is the test
    set; no sample lies across the two.

    Args:
        least: Samples that a role must have, those of the test set included.
        most: Roles at most, drawn among these; by default all.
        seed: What they are drawn by.
        length: Characters in a sample.
        step: Characters from the begin of a sample to that of the next; 1 is every one there is, as in LEAF.

    >>> Shakespeare(least=50, most=100).length
    80
    """

    least: int = 1
    most: int | None = None
    _: KW_ONLY
    seed: int = 0
    package = TEXTS
    length: int = 80
    step: int = 10
    extent = (330_000, 80, len(ALPHABET))

    def __post_init__(self) -> None:
        check_choice(self)
        for name in ("length", "step"):
            require(self, name, getattr(self, name), "at least 1", lambda n: n >= 1, whole=True)

    def federation(self) -> Federation:
        return choose_clients(self, self.samples(), "Shakespeare, by role")

    def samples(self) -> Samples:
        """Those of all roles that say enough for one."""
        texts = self.package.read(self)
        roles = {
            f"{play.replace('_', ' ')}: {role}": _codes(speech)
            for play, text in zip(PLAYS, texts, strict=True)
            for role, speech in sorted(split_by_role(text.decode("latin-1")).items())
        }
        parts: list[tuple[str, list[Numbers]]] = []
        for name, codes in roles.items():
            split = len(codes) - int(TEST_SHARE * len(codes))
            windows = [_windows(part, self.length, self.step) for part in (codes[:split], codes[split:])]
            if len(windows[0]):
                parts.append((name, windows))
        if not parts:
            longest = max(len(codes) - int(TEST_SHARE * len(codes)) for codes in roles.values())
            rule = f"length must be below {longest}, the training data of the longest role"
            raise ValueError(f"Shakespeare: {rule}, got {self.length}")
        rows = np.concatenate([window for _, windows in parts for window in windows])
        counts = np.array([[len(window) for window in windows] for _, windows in parts])
        return Samples(
            rows[:, :-1],
            rows[:, -1].astype(np.int64),
            np.repeat(np.arange(len(parts)), counts.sum(axis=1)),
            np.repeat(np.tile([False, True], len(parts)), counts.ravel()),
            Names(tuple(name for name, _ in parts), tuple(map(_letter, ALPHABET))),
        )


def split_by_role(text: str) -> dict[str, str]:
    r"""What each role of a play says, lines and all; directions are left out.

    A role's name is the first line of a paragraph, with or without a full stop, in capitals or repeated.

    Args:
        text: The play.

    >>> split_by_role("ACT I.\n\nBAWD.\nGood night.\n\n[Exit.]\n\nGone!\n\nPANDAR\nSo be it.\n")
    {'BAWD': 'Good night.\nGone!', 'PANDAR': 'So be it.'}
    """
    paragraphs = list(_paragraphs(text))
    headings = [(lines[0], _heading(lines)) for lines in paragraphs]
    often = Counter(name for _, name in headings if name)
    known = {name for line, name in headings if name and (often[name] >= SEEN or line.upper() == line)}
    said: dict[str, list[str]] = {}
    speaker = ""
    for lines, (_, name) in zip(paragraphs, headings, strict=True):
        if DIRECTION.match(lines[0]):
            speaker = "" if DIVISION.match(lines[0]) else speaker
            continue
        if name in known:
            speaker, lines = name, lines[1:]
        for line in lines:
            inline = INLINE.match(line)
            if inline and inline[1] in known:
                speaker, line = inline[1], inline[2]
            if speaker:
                said.setdefault(speaker, []).append(line)
    return {role: "\n".join(lines) for role, lines in said.items()}


def _paragraphs(text: str) -> Iterator[list[str]]:
    for paragraph in re.split(r"\n\s*\n", STAGE.sub("", text.replace("\r\n", "\n"))):
        lines = [line.strip() for line in paragraph.split("\n") if line.strip()]
        if lines:
            yield lines


def _heading(lines: list[str]) -> str:
    """The role that a paragraph may be of: its first line, where that is short and not all of it."""
    match = HEADING.fullmatch(lines[0])
    if not match or len(lines) == 1 or DIRECTION.match(lines[0]):
        return ""
    name = match[1].strip().upper()
    return name if len(name) <= 30 and len(name.split()) <= 4 and not NO_ROLE.fullmatch(name) else ""


def _codes(text: str) -> Numbers:
    codes = CODES[np.frombuffer(text.encode("latin-1"), np.uint8)]
    return codes[codes < len(ALPHABET)]


def _windows(codes: Numbers, length: int, step: int) -> Numbers:
    """The samples of a text, each with the character that follows, [n, length + 1]."""
    if len(codes) <= length:
        return np.empty((0, length + 1), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(codes, length + 1)[::step]


def _letter(letter: str) -> str:
    return {"\n": "new line", " ": "space"}.get(letter, letter)
