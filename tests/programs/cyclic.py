"""Touches the pages of a mapping in an order that is easily told, several times over.

    cyclic.py PAGES ROUNDS

Prints the number of the mapping's first page, then "ok" once every page still holds what was written.
Page i of a round is page i * 7 modulo PAGES, which must not be a multiple of 7.
"""
import ctypes
import mmap
import sys

PAGE = 4096
pages, rounds = int(sys.argv[1]), int(sys.argv[2])
memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
print(ctypes.addressof(ctypes.c_char.from_buffer(memory)) // PAGE)
for number in range(rounds):
    for i in range(pages):
        at = i * 7 % pages * PAGE
        if number == 0:
            memory[at] = at // PAGE % 251
        elif memory[at] != at // PAGE % 251:
            sys.exit(f"page {at // PAGE} differs in round {number}")
print("ok")
