#!/usr/bin/env python3
"""What pleat costs while a program sleeps in less memory than it has: CPU time of the supervisor, in per cent of one CPU.

    tests/bench/sleeping.py PLEAT [--memory 60M] [--seconds 10] [--runs 3] [FLAG OF PLEAT RUN...]

FLAGS are for what watches: `--trace-stats FILE`, `--notify`; with `--metrics PORT` the figures are read once a second."""
import os
import statistics
import subprocess
import sys
import time
import urllib.request

PROGRAM = """
import os, time
all = [os.urandom(2048) + b"x" * 2048 for _ in range(25000)]
print("filled", flush=True)
time.sleep(1000)
"""


def cpu_s(pid):
    threads = f"/proc/{pid}/task"
    return sum(int(open(f"{threads}/{thread}/schedstat").read().split()[0]) for thread in os.listdir(threads)) / 1e9


def percent(pleat, memory, seconds, flags):
    command = [pleat, "run", "--memory", memory, *flags, "--", sys.executable, "-c", PROGRAM]
    job = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert job.stdout.readline() == "filled\n"
        time.sleep(3)
        port = flags[flags.index("--metrics") + 1] if "--metrics" in flags else None
        before, start = cpu_s(job.pid), time.monotonic()
        while time.monotonic() < start + seconds:
            if port:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read()
            time.sleep(1)
        return (cpu_s(job.pid) - before) / (time.monotonic() - start) * 100
    finally:
        job.terminate()
        job.wait()


def main():
    words = sys.argv[1:]
    options = {"--memory": "60M", "--seconds": "10", "--runs": "3"}
    for name in options:
        if name in words:
            at = words.index(name)
            options[name] = words[at + 1]
            del words[at : at + 2]
    if not words or words[0].startswith("-"):
        sys.exit(__doc__)
    runs = [percent(words[0], options["--memory"], float(options["--seconds"]), words[1:]) for _ in range(int(options["--runs"]))]
    print(f"{statistics.median(runs):.2f} % of a CPU ({min(runs):.2f} to {max(runs):.2f})")


if __name__ == "__main__":
    main()
