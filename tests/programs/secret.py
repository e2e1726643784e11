"""Keeps a text in memory, once in each page, among bytes that do not compress.

    secret.py MEGABYTES TEXT

Prints "kept" when every page has been filled, and then sleeps for a minute.
"""
import os
import sys
import time

PAGE = 4096
pages, text = int(sys.argv[1]) * 256, sys.argv[2].encode()
before, behind = PAGE // 2, PAGE // 2 - len(text)
memory = bytearray(pages * PAGE)
for page in range(pages):
    memory[page * PAGE : (page + 1) * PAGE] = os.urandom(before) + text + os.urandom(behind)
print("kept", flush=True)
time.sleep(60)
