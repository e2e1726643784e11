#!/usr/bin/env python3
"""Prints MEGABYTES of unsorted lines for GNU sort, like a log of requests.

    gen_lines.py MEGABYTES > lines
"""
import random
import sys

PATHS = ["index", "search", "cart", "login", "static/app.js", "static/site.css", "api/items"]


def block(rng, size):
    """Whole lines of about `size` bytes."""
    lines, length = [], 0
    while length < size:
        line = (f"{rng.getrandbits(44):012x} 10.{rng.randrange(256)}.{rng.randrange(256)}.7 GET "
                f"/{rng.choice(PATHS)}?id={rng.randrange(10**6)} {rng.choice((200, 304, 404))} "
                f"{rng.randrange(90000)}\n")
        lines.append(line)
        length += len(line)
    return "".join(lines)


def main(megabytes):
    rng = random.Random(5)
    wanted, written = megabytes << 20, 0
    while written < wanted:
        # Blocks repeat their texts behind fresh keys: quick to make, no two lines alike.
        body = block(rng, 1 << 20).splitlines()
        for shift in range(8):
            text = "\n".join(f"{rng.getrandbits(32):08x}{line}" for line in body) + "\n"
            written += sys.stdout.write(text)
            if written >= wanted:
                return


if __name__ == "__main__":
    main(int(sys.argv[1]))
