"""Fills memory with records, waits SECONDS, and checks that every record is as it was.

idle.py RECORDS SECONDS
"""

import random
import sys
import time

WORDS = ["fold", "page", "cache", "memory", "fault", "cell", "slot"]

records, seconds = int(sys.argv[1]), float(sys.argv[2])
random.seed(1)
rows = [
    {"id": i, "name": " ".join(random.choice(WORDS) for _ in range(6)), "next": i * 7}
    for i in range(records)
]
letters = sum(len(row["name"]) for row in rows)
time.sleep(seconds)
assert letters == sum(len(row["name"]) for row in rows)
assert all(row["next"] == row["id"] * 7 for row in rows)
print("ok", letters)
