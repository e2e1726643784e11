#!/usr/bin/env python3
"""A full-text index held in memory, as many services have one: index.py DOCUMENTS QUERIES

Reads documents (made up here), indexes their words, and answers queries, most of them about recent
documents. The same arguments always print the same line.
"""
import random
import sys
import zlib
from array import array

WORDS = [f"word{number:04d}" for number in range(5000)]


def documents(rng, count):
    sentences = [" ".join(rng.choices(WORDS, k=12)) for _ in range(2000)]
    for number in range(count):
        yield f"{number}: " + ". ".join(rng.choices(sentences, k=5))


def build(rng, count):
    texts, numbers_of = [], {word: array("L") for word in WORDS}
    for number, text in enumerate(documents(rng, count)):
        texts.append(text)
        for word in text.split(None, 9)[1:9]:
            numbers_of[word.rstrip(".")].append(number)
    return texts, numbers_of


def answer(rng, texts, numbers_of):
    recent = rng.random() < 0.9
    age = int(rng.random() * len(texts) * (0.1 if recent else 1))
    word = texts[-1 - age].split(None, 2)[1]
    return sum(zlib.crc32(texts[number].encode()) for number in numbers_of[word][-3:])


def main():
    count, queries = int(sys.argv[1]), int(sys.argv[2])
    rng = random.Random(11)
    texts, numbers_of = build(rng, count)
    total = sum(answer(rng, texts, numbers_of) for _ in range(queries))
    print(f"{len(texts)} documents, {sum(map(len, numbers_of.values()))} entries, checksum {total}")


if __name__ == "__main__":
    main()
