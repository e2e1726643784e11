#!/usr/bin/env python3
"""Reads of a file that fits into memory, through the mount, a plain pass-through of FUSE and natively:
128 KiB preads in sequence and at random, 4 KiB preads at random, and reads of a mapping made anew for
each pass. What is hot has to cost what it costs without pleat. Needs root and cgroup v1.

    sudo python3 hot.py -n 5
"""
import mmap
import os
import random
import time

import common
from common import MB, Bench, Served

BLOCK = 128 << 10
SMALL = 4 << 10


def preads(fd, offsets, length):
    buffer = [memoryview(bytearray(length))]
    for at in offsets:
        if os.preadv(fd, buffer, at) != length:
            raise RuntimeError("short read")


def sequential(fd, size, rnd):
    preads(fd, range(0, size, BLOCK), BLOCK)
    return size


def at_random(fd, size, rnd):
    preads(fd, [rnd.randrange(size // BLOCK) * BLOCK for _ in range(size // BLOCK)], BLOCK)
    return size


def small_at_random(fd, size, rnd):
    count = min(size // SMALL, 20_000)
    preads(fd, [rnd.randrange(size // SMALL) * SMALL for _ in range(count)], SMALL)
    return count * SMALL


def mapped(fd, size, rnd):
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as map_:
        for at in range(0, size, BLOCK):
            map_[at:at + BLOCK]
    return size


def mapped_at_random(fd, size, rnd):
    with mmap.mmap(fd, size, prot=mmap.PROT_READ) as map_:
        map_.madvise(mmap.MADV_RANDOM)
        pages = list(range(0, size, SMALL))
        rnd.shuffle(pages)
        for at in pages:
            map_[at]
    return size


WORKLOADS = {"sequential, 128 KiB": sequential, "random, 128 KiB": at_random, "random, 4 KiB": small_at_random,
             "mapped, sequential": mapped, "mapped, random pages": mapped_at_random}


def measure(bench, system, root):
    """MB/s of each workload: enough passes to last a while, after two to warm up."""
    result, size = {"system": system}, bench.args.file_mb * MB
    with Served(bench, system, root, bench.args.memory) as served:
        fd = os.open(served.path / "file", os.O_RDONLY)
        try:
            for name, workload in WORKLOADS.items():
                rnd, read, passes = random.Random(1), 0, 0
                for _ in range(2):
                    sequential(fd, size, rnd)
                start = time.monotonic()
                while time.monotonic() < start + bench.args.seconds or passes < 2:
                    read += workload(fd, size, rnd)
                    passes += 1
                result[name] = read / MB / (time.monotonic() - start)
        finally:
            os.close(fd)
    result["stats"] = served.stats
    return result


def main():
    parser = common.options(__doc__, 256, systems="native,pass-through,pleat", runs=5, iops=0, disk_mb=1024)
    parser.add_argument("--file-mb", type=int, default=48, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement; default %(default)s")
    args = common.settle(parser.parse_args())
    runs = []
    with Bench(args) as bench:
        root = bench.disk.path / "files"
        root.mkdir()
        pool, rnd = common.rows(3, "html"), random.Random(3)
        (root / "file").write_bytes(common.text_of(pool, rnd, args.file_mb * MB))
        for _ in range(args.runs):
            runs += [measure(bench, system, root) for system in args.systems]
    lines = []
    for name in WORKLOADS:
        medians = [common.median_of([r for r in runs if r["system"] == s], name) for s in args.systems]
        ratios = [f"{m / medians[0]:.2f}" for m in medians[1:]]
        lines.append([name] + medians + ratios)
    header = ["MB/s"] + args.systems + [f"{s} / {args.systems[0]}" for s in args.systems[1:]]
    common.save(args, "hot", runs, [("", common.markdown(header, lines))])


if __name__ == "__main__":
    main()
