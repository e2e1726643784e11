#!/usr/bin/env python3
"""Attaches to programs that run, and leaves them again, many times: CPython, the JVM, node and Go, each with so many MiB that it
changes and checks all the time, and threads that wait in every way.

    bench/attach/cycles.py DIR_OF_BUILD [--cycles 200] [--mib 300] [--share 60] [python|java|node|go ...]

After each cycle the program must have gone on, with the threads and the mappings that it had before. Prints a line for each program.
"""
import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SETTLED_S = 20


def command(kind, mib, work):
    if kind == "python":
        return [sys.executable, HERE / "hold.py", mib]
    if kind == "node":
        return ["node", "--max-old-space-size=700", HERE / "hold.js", mib]
    if kind == "java":
        subprocess.run(["javac", "-d", work, HERE / "Hold.java"], check=True)
        return ["java", "-Xmx700m", "-cp", work, "Hold", mib]
    program = work / "hold"
    subprocess.run(["go", "build", "-o", program, HERE / "hold.go"], check=True, env={**os.environ, "GOFLAGS": ""})
    return [program, mib]


def status(pid, key):
    found = re.search(rf"^{key}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(found[1])


def threads(pid):
    """Names of its threads that could be pleat's."""
    return [name for name in (task.joinpath("comm").read_text().strip() for task in Path(f"/proc/{pid}/task").iterdir()) if "pleat" in name]


def is_free(pid):
    """Whether nothing of pleat's is in it."""
    registered = re.search(r"^VmFlags:.*\b(um|uw)\b", Path(f"/proc/{pid}/smaps").read_text(), re.M)
    return not threads(pid) and not registered and "pleat" not in Path(f"/proc/{pid}/maps").read_text()


class Program:
    def __init__(self, kind, mib, work):
        self.log = work / "log"
        self.process = subprocess.Popen(list(map(str, command(kind, mib, work))), stdout=self.log.open("w"), stderr=subprocess.STDOUT)
        self.pid = self.process.pid
        until(lambda: "ready" in self.log.read_text() or self.process.poll() is not None, 120, "the program is not ready")
        time.sleep(5)

    def passes(self):
        """How many it has made; None where it has found something wrong."""
        with self.log.open("rb") as file:
            file.seek(max(0, self.log.stat().st_size - 200))
            last = file.read().decode().splitlines()
        is_well = self.process.poll() is None and not any("wrong" in line for line in last)
        return int(last[-2]) if is_well else None

    def end(self):
        self.process.kill()
        self.process.wait()


def until(is_so, limit, why):
    end = time.monotonic() + limit
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(why)
        time.sleep(0.02)


def cycle(pleat, program, budget_mib, swap_dir):
    """One; answers how long detaching took, and how much memory the program had meanwhile, in MiB."""
    before = program.passes()
    attached = subprocess.Popen(
        [pleat, "attach", "--memory", f"{budget_mib}M", "--swap-dir", swap_dir, str(program.pid)], stderr=subprocess.PIPE, text=True
    )
    until(lambda: threads(program.pid) or attached.poll() is not None, SETTLED_S, "it gets no agent")
    until(lambda: status(program.pid, "VmRSS") <= budget_mib * 1024 or attached.poll() is not None, SETTLED_S, "it stays over its budget")
    low = status(program.pid, "VmRSS") / 1024
    start = time.monotonic()
    subprocess.run([pleat, "detach", str(program.pid)], check=True, stdout=subprocess.DEVNULL)
    said = attached.communicate(timeout=60)[1]
    took = time.monotonic() - start
    if attached.returncode != 0 or not is_free(program.pid):
        raise SystemExit(f"attach ended with {attached.returncode}: {said}")
    after = program.passes()
    until(lambda: (program.passes() or after) > after, SETTLED_S, "the program does not go on")
    if before is None or after is None:
        raise SystemExit("the program has found something wrong")
    return took, low


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--mib", type=int, default=300)
    parser.add_argument("--share", type=int, default=60, help="budget, as a part of what the program has")
    parser.add_argument("kinds", nargs="*", default=[])
    options = parser.parse_intermixed_args()
    for kind in options.kinds or ["python", "java", "node", "go"]:
        if kind != "python" and not shutil.which("javac" if kind == "java" else kind):
            print(f"SKIP {kind}: not installed")
            continue
        with tempfile.TemporaryDirectory() as work:
            work = Path(work)
            program = Program(kind, options.mib, work)
            try:
                has = status(program.pid, "VmRSS") // 1024
                budget = has * options.share // 100
                done = [cycle(options.build / "pleat", program, budget, work) for _ in range(options.cycles)]
            finally:
                passes = program.passes()
                program.end()
            took, low = zip(*done)
            print(
                f"{kind:7} {len(done)} cycles, {has} MiB in {budget}M: had {statistics.median(low):.0f} MiB (median), "
                f"detached within {statistics.median(took):.2f} s (median), {max(took):.2f} s (most); passes {passes}",
                flush=True,
            )


main()
