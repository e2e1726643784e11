#!/usr/bin/env python3
"""Many small files beyond memory (PostMark), and five streaming reads of a file of twice the memory: what
the mount costs where a cache gains little, with and without its switch for clean pages.

Systems take turns in every round; medians, and ratios to the first system of the same round. Needs
postmark (Debian: postmark), root and cgroup v1.

    sudo python3 postmark.py -m 64 -n 5
    sudo python3 postmark.py -m 32 -n 1 --transactions 2000 -s native,pleat      # a quick look
"""
import os
import re
import time

import common
from common import MB, Bench, Group, Served, need, run_in

FILE_BYTES = (512, 16 << 10)
BLOCK, PASSES = 128 << 10, 5
HOST_MB = 16  # of the cgroup, for PostMark's own tables and the kernel's
TIMEOUT = 1800


def postmark(bench, served, group):
    """Seconds and transactions per second."""
    args = bench.args
    place = served.path / "postmark"
    place.mkdir()
    count = int(args.memory * MB * args.files / (sum(FILE_BYTES) / 2))
    script = "\n".join([f"set location {place}", f"set size {FILE_BYTES[0]} {FILE_BYTES[1]}",
                        f"set number {count}", f"set transactions {args.transactions}", "set seed 42",
                        "set subdirectories 100", "set buffering false", "run", "quit", ""])
    start = time.monotonic()
    out = run_in(group, ["postmark"], TIMEOUT, say=script, cwd=bench.work)
    seconds = time.monotonic() - start
    rate = re.search(r"of transactions \((\d+) per second\)", out)
    if not rate:
        raise RuntimeError(f"postmark says: {out[-400:]}")
    return {"seconds": seconds, "transactions_s": args.transactions and float(rate.group(1))}


def streaming(bench, served, group):
    """Sequential reads by processes of the group."""
    start = time.monotonic()
    for _ in range(PASSES):
        run_in(group, ["dd", f"if={served.path}/stream", "of=/dev/null", f"bs={BLOCK}"], TIMEOUT)
    seconds = time.monotonic() - start
    return {"seconds": seconds, "mb_s": bench.args.memory * 2 * PASSES / seconds}


def plant_stream(bench, root):
    pool, rnd = common.rows(3, "text"), common.random.Random(3)
    with open(root / "stream", "wb") as file:
        for _ in range(bench.args.memory * 2):
            file.write(common.text_of(pool, rnd, MB))


def measure(bench, system, workload, root):
    bench.disk.cold()
    group = Group(bench, bench.args.memory)
    served = Served(bench, system, root, bench.args.memory - HOST_MB, group)
    with served:
        figures = workload(bench, served, group)
    os.sync()
    ooms = group.oom_kills()
    group.close()
    common.shutil.rmtree(root / "postmark", ignore_errors=True)
    return {"workload": workload.__name__, "system": system, **figures, "oom_kills": ooms, "stats": served.stats}


def table(args, runs, workload, unit):
    mine = [run for run in runs if run["workload"] == workload]
    by_system = {s: [run for run in mine if run["system"] == s] for s in args.systems}
    first = by_system[args.systems[0]]
    lines = []
    for system, its in by_system.items():
        ratios = [{"ratio": run["seconds"] / base["seconds"]} for run, base in zip(its, first)]
        lines.append([system, common.median_of(its, "seconds"), min(r["seconds"] for r in its),
                      max(r["seconds"] for r in its), common.median_of(its, unit),
                      common.median_of(ratios, "ratio")])
    header = ["system", "seconds", "min", "max", unit.replace("_s", "/s"), f"time, {args.systems[0]} = 1"]
    return workload, common.markdown(header, lines)


def main():
    parser = common.options(__doc__, 64, systems="native,pass-through,pleat-none,pleat,pleat-all", runs=5,
                            disk_mb=2048)
    parser.add_argument("--files", type=float, default=2, help="times the memory; default %(default)s")
    parser.add_argument("--transactions", type=int, default=10000, help="default %(default)s")
    args = common.settle(parser.parse_args())
    need(postmark="postmark", dd="coreutils")
    runs = []
    with Bench(args) as bench:
        root = bench.disk.path / "files"
        bench.disk.limit(0)
        root.mkdir()
        plant_stream(bench, root)
        for _ in range(args.runs):
            for workload in (postmark, streaming):
                runs += [measure(bench, system, workload, root) for system in args.systems]
    tables = [table(args, runs, "postmark", "transactions_s"), table(args, runs, "streaming", "mb_s")]
    common.save(args, "postmark", runs, tables)


if __name__ == "__main__":
    main()
