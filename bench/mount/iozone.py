#!/usr/bin/env python3
"""What `iozone -i 0 -i 1` measures (write, rewrite, read, reread), with files of half, once and twice the
memory, by system calls and by mappings, and a read after posix_fadvise(WILLNEED). IOzone itself is not in
Debian's free part; fio makes the same accesses. Needs fio (Debian: fio), root and cgroup v1.

    sudo python3 iozone.py -m 128 -n 3
    sudo python3 iozone.py -m 48 -n 1 --sizes 0.5,2 -s native,pleat      # a quick look
"""
import json
import os
import sys
import time

import common
from common import Bench, Group, Served, need, run_in

HOST_MB = 24  # of the cgroup, for fio itself
TIMEOUT = 1800
STEPS = [("write", "psync", "write"), ("rewrite", "psync", "write"), ("read", "psync", "read"),
         ("reread", "psync", "read"), ("mapped write", "mmap", "write"), ("mapped read", "mmap", "read")]
WILLNEED = """
import os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
size, at, buffer = os.fstat(fd).st_size, 0, bytearray(1 << 17)
os.posix_fadvise(fd, 0, size, os.POSIX_FADV_WILLNEED)
while at < size:
    at += os.preadv(fd, [buffer], at)
"""


def fio(bench, served, group, engine, way, size_mb):
    """MB/s of one pass over the file, the time until it is on disk included."""
    out = run_in(group, ["fio", "--name=pass", f"--filename={served.path}/file", f"--rw={way}", "--bs=128k",
                         f"--size={size_mb}m", f"--ioengine={engine}", "--fallocate=none", "--end_fsync=1",
                         "--invalidate=0", "--buffer_compress_percentage=65", "--refill_buffers",
                         "--buffer_compress_chunk=4k", "--output-format=json", "--thread"], TIMEOUT,
                 cwd=bench.work)
    job = json.loads(out[out.index("{"):])["jobs"][0]
    return size_mb / (job["job_runtime"] / 1000)


def willneed(served, group, size_mb):
    start = time.monotonic()
    run_in(group, [sys.executable, "-c", WILLNEED, served.path / "file"], TIMEOUT)
    return size_mb / (time.monotonic() - start)


def measure(bench, system, times, root):
    size_mb = int(bench.args.memory * times)
    bench.disk.cold()
    group = Group(bench, bench.args.memory)
    served = Served(bench, system, root, bench.args.memory - HOST_MB, group)
    with served:
        speeds = {name: fio(bench, served, group, engine, way, size_mb) for name, engine, way in STEPS}
        speeds["read after willneed"] = willneed(served, group, size_mb)
    os.sync()
    result = {"system": system, "times": times, **speeds, "oom_kills": group.oom_kills(), "stats": served.stats}
    group.close()
    (root / "file").unlink()
    return result


def main():
    parser = common.options(__doc__, 128, systems="native,pass-through,pleat-none,pleat,pleat-all", runs=3)
    parser.add_argument("--sizes", default="0.5,1,2", help="times the memory; default %(default)s")
    args = common.settle(parser.parse_args())
    need(fio="fio")
    sizes, runs = list(map(float, args.sizes.split(","))), []
    with Bench(args) as bench:
        root = bench.disk.path / "files"
        root.mkdir()
        for _ in range(args.runs):
            for times in sizes:
                runs += [measure(bench, system, times, root) for system in args.systems]
    columns, tables = [name for name, *_ in STEPS] + ["read after willneed"], []
    for times in sizes:
        mine = {s: [r for r in runs if (r["system"], r["times"]) == (s, times)] for s in args.systems}
        lines = [[s] + [common.median_of(its, column) for column in columns] for s, its in mine.items()]
        tables.append((f"File of {times:g} M, MB/s", common.markdown(["system"] + columns, lines)))
    common.save(args, "iozone", runs, tables)


if __name__ == "__main__":
    main()
