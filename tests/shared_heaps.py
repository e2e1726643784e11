#!/usr/bin/env python3
"""Programs that have much of their memory shared, under pleat and beside the kernel's swap: prints the table of docs/limits.md. As root:

    tests/shared_heaps.py DIR_OF_BUILD [--runs 3] [--shares 80,60] [--neighbour] [--most 120] [--options WORDS] [CASE...]

CASE is zgc (java -XX:+UseZGC), joblib (an array in /dev/shm), postgres (tests/postgres.sh, shared buffers of a third) or segment
(tests/programs/segment.c: four processes that share 300 MB by forks). WORDS are further options of `pleat run`. Each is run freely first, which tells what memory it needs: private memory and what is mapped, from its memory cgroup. Then by turns under pleat with a
share of that as its budget, in a hard limit of 2 % more and without swap, and without pleat in a limit as large as the budget, with a
swap file on the same disk. --neighbour has a busy thread for each CPU beside it. Of a job of pleat's that is not at its end after MOST
seconds it is told when pleat said something first, and in what time SIGTERM ended it. PYTHON is the one that has joblib.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "suites" / "run.d"))
import jobs  # noqa: E402

PYTHON = os.environ.get("PYTHON", "python3")
SWAP_MIB = 2048
TERM_S = 90


def zgc(work, _prefix):
    return ["java", "-XX:+UseZGC", "-Xmx512m", "-cp", str(work), "Heap", "1000000"], r"^-?\d+$"


def joblib(work, _prefix):
    return [PYTHON, str(HERE / "programs/shared_array.py"), "160"], r"^\[\[.*$"


def postgres(_work, _prefix):
    # Beside its shared buffers it needs 52 MB: these are a third of all.
    return ["env", "SHARED=26MB", "SECONDS_OF_IT=10", str(HERE / "postgres.sh"), "none", "none"], r"tps = (\d+)"


def segment(work, _prefix):
    return [str(work / "segment"), "300", "4", "2"], r"^ok segment$"


CASES = {"zgc": zgc, "joblib": joblib, "postgres": postgres, "segment": segment}


def installed(case):
    if case == "zgc":
        return shutil.which("javac")
    if case == "segment":
        return shutil.which("cc")
    if case == "joblib":
        return subprocess.run([PYTHON, "-c", "import joblib, numpy"], stderr=subprocess.DEVNULL).returncode == 0
    return Path("/usr/lib/postgresql/15/bin/initdb").exists()


class Run:
    """One run; `told` is what its row says of it."""

    def __init__(self, command, pattern, group, most):
        # Read by a description of its own: one that was shared would move the place at which the program writes.
        writes = tempfile.NamedTemporaryFile("ab", dir="/var/tmp")
        said = open(writes.name, "rb")
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=writes, stderr=subprocess.STDOUT, start_new_session=True,
                                   preexec_fn=group.enter)
        self.first_line_s = None
        self.ended_by_term_s = None
        try:
            self.wait(process, said, began, most)
        finally:
            group.leave()
        self.status = process.returncode
        said.seek(0)
        self.said = said.read().decode(errors="replace")
        found = re.search(pattern, self.said, re.M)
        self.result = (found[1] if found.groups() else found[0]) if found else None

    def wait(self, process, said, began, most):
        while process.poll() is None and time.monotonic() - began < most:
            time.sleep(0.02)
            said.seek(0)
            if self.first_line_s is None and b"pleat: " in said.read():
                self.first_line_s = time.monotonic() - began
        self.seconds = time.monotonic() - began
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(TERM_S)
                self.ended_by_term_s = time.monotonic() - began - self.seconds
            except subprocess.TimeoutExpired:
                pass
            self.late = True
        else:
            self.late = False

    def wrong(self, right):
        """What went wrong, in words, or nothing."""
        if self.late:
            line = "nothing said" if self.first_line_s is None else f"said why after {self.first_line_s:.1f} s"
            end = "TERM did not end it" if self.ended_by_term_s is None else f"TERM ended it in {self.ended_by_term_s:.1f} s"
            return f"not at its end ({line}, {end})"
        if self.status != 0 or self.result is None:
            return f"status {self.status}"
        return None if right is None or self.result == right else "wrong result"


def median(values):
    return sorted(values)[len(values) // 2]


def row(case, share, arguments, work, pleat):
    command, pattern = CASES[case](work, [])
    free_group = jobs.Group()
    free = Run(command, pattern, free_group, arguments.most)
    if free.wrong(None):
        print(f"{case}: {free.wrong(None)} without a limit:\n{free.said}")
        return False
    budget = free_group.peak * share // 100
    rate = case == "postgres"
    right = None if rate else free.result
    figures = {"pleat": [], "swap": []}
    wrong = []
    for _ in range(arguments.runs):
        for way in figures:
            if way == "pleat":
                group = jobs.Group(limit=budget * 102 // 100, swap=False)
                whole = [pleat, "run", "--memory", str(budget), "--swap-dir", "/var/tmp", *arguments.options.split(), "--", *command]
            else:
                group = jobs.Group(limit=budget)
                whole = command
            one = Run(whole, pattern, group, arguments.most)
            if fault := one.wrong(right):
                wrong.append((way, fault, one.said))
            else:
                figures[way].append(float(one.result) if rate else one.seconds)
    unit = "/s" if rate else " s"

    def cell(way):
        ended = figures[way]
        failed = [fault for other, fault, _ in wrong if other == way]
        text = f"{median(ended):.1f}{unit} ({min(ended):.1f} to {max(ended):.1f})" if ended else ""
        return " ".join([text, *(f"{failed.count(one)} of {arguments.runs} {one}" for one in sorted(set(failed)))]).strip()

    ratio = ""
    if all(figures.values()):
        ratio = median(figures["swap"]) / median(figures["pleat"])
        ratio = f"{ratio if rate else 1 / ratio:.2f}"
    alone = float(free.result) if rate else free.seconds
    beside = "neighbour" if arguments.neighbour else "nothing"
    print(f"| {case} | {free_group.peak >> 20}M | {alone:.1f}{unit} | {share} % | {beside} | {cell('pleat')} | {cell('swap')} | {ratio} |", flush=True)
    for way, fault, said in wrong:
        print(f"\n{case}, {way}: {fault}:\n" + "".join(f"    {line}\n" for line in said.splitlines()[-12:]), flush=True)
    return not any(way == "pleat" for way, _, _ in wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shares", default="80,60")
    parser.add_argument("--neighbour", action="store_true")
    parser.add_argument("--most", type=float, default=120)
    parser.add_argument("--options", default="")
    arguments = parser.parse_intermixed_args()
    if os.geteuid() != 0 or not jobs.Group.possible():
        print("SKIP: only root can set the limits, in a memory cgroup of version 1")
        sys.exit(77)
    pleat = str(Path(arguments.build).resolve() / "pleat")
    work = Path(tempfile.mkdtemp(prefix="pleat-shared-", dir="/var/tmp"))
    swap = work / "swap"
    neighbours = []
    good = True
    # An exception, so that the swap file goes in any case.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Groups of others that are made meanwhile take this over, and so find no swap where there was none.
    swappiness = Path("/proc/sys/vm/swappiness")
    before = swappiness.read_text()
    try:
        if shutil.which("javac"):
            subprocess.run(["javac", "-d", str(work), str(HERE / "programs/Heap.java")], check=True)
        if shutil.which("cc"):
            subprocess.run(["cc", "-O2", "-o", str(work / "segment"), str(HERE / "programs/segment.c")], check=True)
        with open(swap, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, SWAP_MIB << 20)
        swap.chmod(0o600)
        subprocess.run(["mkswap", str(swap)], check=True, stdout=subprocess.DEVNULL)
        swappiness.write_text("0")
        subprocess.run(["swapon", str(swap)], check=True)
        for _ in range(os.cpu_count() if arguments.neighbour else 0):
            neighbours.append(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
        print("| program | needs | freely | budget | beside it | pleat | kernel's swap | times |\n|---|---|---|---|---|---|---|---|")
        for case in arguments.cases or CASES:
            if not installed(case):
                print(f"SKIP {case}: not installed")
                continue
            for share in arguments.shares.split(","):
                good &= row(case, int(share), arguments, work, pleat)
    finally:
        for one in neighbours:
            one.kill()
            one.wait()
        subprocess.run(["swapoff", str(swap)])
        swappiness.write_text(before)
        shutil.rmtree(work)
    sys.exit(0 if good else 1)


main()
