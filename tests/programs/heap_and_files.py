"""Walks over its heap and over files by turns, checks every page of both, and tells how much of each is
in memory after each walk.

    heap_and_files.py HEAP_MB DIR WALK...

WALK is h (the heap) or f (every file of DIR) with a number of passes, as in h3 f5; F reads the files by
mappings; k walks over both in a forked child and in the parent at once. `make DIR MB` makes the files.
"""

import ctypes
import mmap
import os
import random
import sys

PAGE = 4096
FILE_MB = 8
libc = ctypes.CDLL(None, use_errno=True)
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
POOL = random.Random(7).randbytes(1 << 16)


def page(number):
    """Compresses about 3:1, and is like no other."""
    at = number * 61 % (len(POOL) - 1400)
    return (POOL[at : at + 1357] + number.to_bytes(8, "little")) * 3 + b"."


def path(directory, number):
    return os.path.join(directory, f"file-{number}")


def make(directory, mb):
    for number in range(mb // FILE_MB):
        with open(path(directory, number), "wb") as out:
            for at in range(FILE_MB << 8):
                out.write(page((number + 1 << 20) + at))


def check(found, number, what):
    if found != page(number):
        print(f"FAIL {what}: page {number} is wrong", flush=True)
        sys.exit(1)


def walk_heap(heap):
    for at in range(len(heap) // PAGE):
        check(heap[at * PAGE : at * PAGE + PAGE], at, "heap")


def walk_files(files):
    for number, file in files.items():
        for mb in range(FILE_MB):
            block = os.pread(file, 1 << 20, mb << 20)
            for at in range(256):
                check(block[at * PAGE : at * PAGE + PAGE], (number + 1 << 20) + (mb << 8) + at, "file")


def walk_mappings(files):
    for number, file in files.items():
        with mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE) as pages:
            for at in range(FILE_MB << 8):
                check(pages[at * PAGE : at * PAGE + PAGE], (number + 1 << 20) + at, "mapping")


def cached_mb(files):
    """What the kernel's page cache has of the files."""
    total = 0
    for file in files.values():
        pages = mmap.mmap(file, 0, flags=mmap.MAP_PRIVATE)
        flags = ctypes.create_string_buffer(len(pages) // PAGE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        libc.mincore(start, len(pages), flags)
        total += sum(flag & 1 for flag in flags.raw)
    return total * PAGE >> 20


def anonymous_mb():
    _, resident, shared = open("/proc/self/statm").read().split()[:3]
    return (int(resident) - int(shared)) * PAGE >> 20


def both(heap, files):
    child = os.fork()
    walk_heap(heap)
    walk_files(files)
    if child == 0:
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)


def main(arguments):
    if arguments[0] == "make":
        return make(arguments[1], int(arguments[2]))
    heap = mmap.mmap(-1, int(arguments[0]) << 20, flags=mmap.MAP_PRIVATE)
    for at in range(len(heap) // PAGE):
        heap[at * PAGE : at * PAGE + PAGE] = page(at)
    names = range(len(os.listdir(arguments[1])))
    files = {number: os.open(path(arguments[1], number), os.O_RDWR) for number in names}
    print(f"filled heap {anonymous_mb()} files {cached_mb(files)}", flush=True)
    walks = {
        "h": lambda: walk_heap(heap),
        "f": lambda: walk_files(files),
        "F": lambda: walk_mappings(files),
        "k": lambda: both(heap, files),
    }
    for walk in arguments[2:]:
        for _ in range(int(walk[1:])):
            walks[walk[0]]()
        print(f"{walk} heap {anonymous_mb()} files {cached_mb(files)}", flush=True)
    print("done", flush=True)


main(sys.argv[1:])
