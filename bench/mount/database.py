#!/usr/bin/env python3
"""A SQLite database of several times the memory on a slow disk: pgbench-like transactions with a skew, the
database client and what serves its files together in a memory cgroup of M. Transactions per second.

  mixed      three point selects and an update of a row, committed (WAL, synchronous=NORMAL)
  select     point selects alone

Needs root and cgroup v1, and Python's sqlite3.

    sudo python3 database.py -m 96 -n 3
    sudo python3 database.py -m 48 -n 1 --seconds 5 --warm-up 5      # a quick look
"""
import json
import random
import sqlite3
import sys
import time

import common
from common import MB, Bench, Group, Meter, Served, run_in

CLIENT_MB = 32  # of the cgroup, for the interpreter and SQLite's own cache
ROW_BYTES = 420
TIMEOUT = 3600


def make(path, total_mb):
    """Accounts whose text packs like that of real rows; how many."""
    rnd, pool = random.Random(11), common.rows(11, "json")
    count = total_mb * MB // (ROW_BYTES + 30)
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE accounts(id INTEGER PRIMARY KEY, balance INTEGER, filler TEXT)")
    rows = ((n, 0, common.text_of(pool, rnd, ROW_BYTES).decode()) for n in range(count))
    db.executemany("INSERT INTO accounts VALUES(?, ?, ?)", rows)
    db.commit()
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    return count


def work(path, count, alpha, warm_up, seconds, kind):
    """What runs inside the group: prints the transactions of the last `seconds`, and their slowest."""
    db = sqlite3.connect(path, isolation_level=None)
    for setting in ("cache_size=-2048", "synchronous=NORMAL", "mmap_size=0", "wal_autocheckpoint=500"):
        db.execute(f"PRAGMA {setting}").fetchall()
    rnd = random.Random(5)
    spread = rnd.randrange(count) | 1

    def key():  # a bounded Pareto law stands in for Zipf's; hot rows lie all over the file
        return int(count * rnd.random() ** (1 / (1 - alpha))) * spread % count

    done, times = 0, []
    start = time.monotonic()
    while (begun := time.monotonic()) < start + warm_up + seconds:
        db.execute("BEGIN")
        for _ in range(3):
            db.execute("SELECT balance, filler FROM accounts WHERE id = ?", (key(),)).fetchone()
        if kind == "mixed":
            db.execute("UPDATE accounts SET balance = balance + 1 WHERE id = ?", (key(),))
        db.execute("COMMIT")
        if begun >= start + warm_up:
            done += 1
            times.append(time.monotonic() - begun)
    times.sort()
    print(json.dumps({"tps": done / seconds, "p99_ms": times[int(len(times) * 0.99)] * 1e3}))


def measure(bench, system, kind, root, count):
    args = bench.args
    bench.disk.cold()
    group = Group(bench, args.memory)
    served = Served(bench, system, root, args.memory - CLIENT_MB, group)
    with served, Meter(bench.disk, group) as meter:
        argv = [sys.executable, __file__, "--work", served.path / "db", count, args.alpha, args.warm_up,
                args.seconds, kind]
        figures = json.loads(run_in(group, argv, TIMEOUT))
    result = {"system": system, "workload": kind, **figures, **meter.rates, "oom_kills": group.oom_kills(),
              "stats": served.stats}
    group.close()
    return result


def main():
    if sys.argv[1:2] == ["--work"]:
        path, count, alpha, warm_up, seconds, kind = sys.argv[2:]
        return work(path, int(count), float(alpha), float(warm_up), float(seconds), kind)
    parser = common.options(__doc__, 96, systems="native,pleat", runs=3)
    parser.add_argument("--alpha", type=float, default=0.6, help="skew, 0 to below 1; default %(default)s")
    parser.add_argument("--times", type=float, default=3, help="database over M; default %(default)s")
    parser.add_argument("--seconds", type=int, default=30, help="default %(default)s")
    parser.add_argument("--warm-up", type=int, default=45, help="seconds; default %(default)s")
    args = common.settle(parser.parse_args())
    runs, kinds = [], ["mixed", "select"]
    with Bench(args) as bench:
        root = bench.disk.path / "files"
        bench.disk.limit(0)
        root.mkdir()
        count = make(root / "db", int(args.memory * args.times))
        with open(root / "db", "rb") as file:
            args.lz4_ratio = common.lz4_ratio([file.read(8 * MB)])
        for _ in range(args.runs):
            for kind in kinds:
                runs += [measure(bench, system, kind, root, count) for system in args.systems]
    keys, lines = ["tps", "p99_ms", "disk_reads_s", "disk_writes_s", "cpus"], []
    for kind in kinds:
        for system in args.systems:
            mine = [r for r in runs if (r["workload"], r["system"]) == (kind, system)]
            lines.append([kind, system] + [common.median_of(mine, key) for key in keys])
    header = ["workload", "system", "transactions/s", "p99 ms", "disk reads/s", "disk writes/s", "CPUs"]
    common.save(args, "database", runs, [("", common.markdown(header, lines))])


if __name__ == "__main__":
    main()
