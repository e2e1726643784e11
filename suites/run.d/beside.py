"""Runs a program beside a heap that is used all the time at random, so that a program too small to fill a budget is pressed as well.

    python3 beside.py MEBIBYTES PROGRAM ARGUMENTS...

Ends as the program ends. What the heap loses is checked: a page that comes back wrong ends it with a message and status 99.
"""
import os
import random
import subprocess
import sys
import time

PAGE = 4096
AT_ONCE = 256


def main():
    pages = int(sys.argv[1]) * (1 << 20) // PAGE
    # Half of a page is noise: it does not compress to nothing.
    heap = bytearray().join(os.urandom(PAGE // 2) + bytes(PAGE // 2) for _ in range(pages))
    heads = [heap[page * PAGE] for page in range(pages)]
    dice = random.Random(1)
    program = subprocess.Popen(sys.argv[2:])
    while program.poll() is None:
        for page in (dice.randrange(pages) for _ in range(AT_ONCE)):
            if heap[page * PAGE] != heads[page] or heap[page * PAGE + PAGE - 1] != 0:
                print(f"beside: page {page} of the heap came back wrong", flush=True)
                program.kill()
                sys.exit(99)
        time.sleep(0.002)
    sys.exit(program.returncode if program.returncode >= 0 else 128 - program.returncode)


main()
