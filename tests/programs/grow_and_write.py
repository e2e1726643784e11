"""Grows to so many pieces of 60 kB beside idle processes, writes a part of each to a file, and checks them at the end."""

import os
import random
import subprocess
import sys
import tempfile

idle = [subprocess.Popen(["sleep", "60"]) for _ in range(8)]
noise = random.Random(5).randbytes(1 << 20)
heap, out = [], tempfile.TemporaryFile()
for at in range(int(sys.argv[1])):
    start = at * 37 % 4096
    heap.append(noise[start : start + 60000] + at.to_bytes(8, "little"))
    assert os.write(out.fileno(), heap[-1][:8192]) == 8192
for one in idle:
    one.kill()
is_whole = all(int.from_bytes(one[-8:], "little") == at for at, one in enumerate(heap))
print("ok" if is_whole else "FAIL")
