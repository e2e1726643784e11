#!/usr/bin/env python3
"""Builds an index of synthetic notes in memory and queries it; prints a digest of the answers.

    pyindex.py NOTES QUERIES

About 2.5 KB of CPython objects per note: strings, lists, tuples, dicts and sets, built in one
order and queried in another, so that queries come back to memory that has gone cold.
"""
import hashlib
import random
import sys

SUBJECTS = ["harbour", "orchard", "lantern", "glacier", "foundry", "meadow", "archive", "signal"]


class Note:
    """One note: its own attribute dict, a unique text and a few tags."""

    def __init__(self, number, rng):
        self.number = number
        self.weight = rng.random()
        self.tags = tuple(f"{rng.choice(SUBJECTS)}-{rng.randrange(3000)}" for _ in range(4))
        self.text = " ".join(self.tags) + f" {rng.getrandbits(64):x}" * 20
        self.visits = [number * 1009 + day * 86400 for day in range(28)]


def build(count, rng):
    notes, by_tag, by_weight = {}, {}, {}
    for number in range(count):
        note = Note(number, rng)
        notes[f"note/{number:08d}"] = note
        for tag in note.tags:
            by_tag.setdefault(tag, set()).add(number)
        by_weight.setdefault(int(note.weight * 5000), []).append((note.weight, number))
    return notes, by_tag, by_weight


def answer(notes, by_tag, by_weight, rng):
    """The heaviest notes that share a tag with a random one, and what they say."""
    start = notes[f"note/{rng.randrange(len(notes)):08d}"]
    near = set().union(*(by_tag[tag] for tag in start.tags))
    band = {number for _, number in by_weight[int(start.weight * 5000)]}
    best = sorted(near ^ band, key=lambda n: (notes[f"note/{n:08d}"].weight, n))[-10:]
    found = [notes[f"note/{n:08d}"] for n in best]
    return ",".join(f"{note.number}:{note.text[:24]}:{sum(note.visits)}" for note in found)


def main(count, queries):
    rng = random.Random(20)
    index = build(count, rng)
    digest = hashlib.sha256()
    for _ in range(queries):
        digest.update(answer(*index, rng).encode())
    print(f"{count} notes, {queries} queries, {digest.hexdigest()}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
