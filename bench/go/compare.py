#!/usr/bin/env python3
"""Go programs in less memory than they need, under pleat, with the kernel's swap to a file, and with zram: prints the table of
docs/benchmarks.md. As root, with a memory cgroup of version 1:

    bench/go/compare.py DIR_OF_BUILD [--runs 3] [--shares 60,40] [--systems pleat,swap,zram] [--most 300] [CASE...]

CASE is map or map-uniform (skewed.go; few keys wanted often, or all alike), or build (`go build` of MODULE, golang.org/x/tools/gopls@v0.20.0,
two compilers at once, with an empty cache of what was compiled; what is downloaded is downloaded before). Each is run freely first,
which tells what memory M it has at most: private and mapped memory of its group. Then by turns, with a share of that in all:

    pleat   a hard limit of M and 2 %, without swap
    swap    a limit of M, and a swap file on the same disk
    zram    a limit of L, and zram. What zram has is charged to no group, so L is looked for: L and what zram had at most are M, within 3 %

What is printed, or built, must be the same. `others` is how many CPUs other work kept busy meanwhile.
"""
import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "suites" / "run.d"))
import jobs  # noqa: E402

MODULE = os.environ.get("MODULE", "golang.org/x/tools/gopls@v0.20.0")
SWAP_MIB = 4096
TOLERANCE = 0.03
SEARCHES = 5
Run = namedtuple("Run", "seconds result total others said")


class Case:
    """What is run, and what must be the same of it; `environment` is made anew for each run."""

    def __init__(self, name, work):
        self.work = work
        self.environment = dict(os.environ)
        self.built = name == "build"
        if self.built:
            self.command = self.make_module()
            return
        program = work / "skewed"
        subprocess.run(["go", "build", "-o", program, HERE / "skewed.go"], check=True, env={**os.environ, "GOFLAGS": ""})
        self.command = [program, "300", "3000000", "1.1" if name == "map" else "0"]

    def make_module(self):
        at = self.work / "module"
        at.mkdir()
        package = MODULE.split("@")[0]
        # What is downloaded stays for the next time; what is compiled does not.
        self.environment.update(GOFLAGS="-mod=mod -p=2", GOTOOLCHAIN="local", GOCACHE=str(self.work / "cache"))
        (at / "go.mod").write_text("module build\n\ngo 1.24\n")
        (at / "tools.go").write_text(f'//go:build tools\n\npackage build\n\nimport _ "{package}"\n')
        for line in (["go", "get", MODULE], ["go", "mod", "download"]):
            subprocess.run(line, check=True, cwd=at, env=self.environment, stderr=subprocess.DEVNULL)
        return ["go", "build", "-C", at, "-trimpath", "-buildvcs=false", "-o", self.work / "out", package]

    def prepare(self):
        shutil.rmtree(self.work / "cache", ignore_errors=True)
        (self.work / "out").unlink(missing_ok=True)
        subprocess.run(["sync"], check=True)

    def result(self, said):
        if self.built:
            out = self.work / "out"
            return hashlib.sha256(out.read_bytes()).hexdigest()[:16] if out.exists() else None
        found = re.search("^CHECK (.*)$", said, re.M)
        return found[1] if found else None


def busy_s():
    """CPU seconds of the whole machine."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / os.sysconf("SC_CLK_TCK")


def spend_s(group):
    """CPU seconds of the job, by the group that it has for that."""
    return int((group / "cpuacct.usage").read_text()) / 1e9


class Swap:
    """A swap device for one run: none, a file, or zram."""

    def __init__(self, kind, work):
        self.kind, self.device, self.number = kind, None, None
        if kind == "swap":
            self.device = work / "swap"
            with open(self.device, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, SWAP_MIB << 20)
            self.device.chmod(0o600)
        elif kind == "zram":
            self.number = Path("/sys/class/zram-control/hot_add").read_text().strip()
            self.device = Path(f"/dev/zram{self.number}")
            (self.of_zram() / "comp_algorithm").write_text("lz4")
            (self.of_zram() / "disksize").write_text(str(SWAP_MIB << 20))
        if self.device:
            subprocess.run(["mkswap", self.device], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            subprocess.run(["swapon", self.device], check=True)

    def of_zram(self):
        return Path(f"/sys/block/zram{self.number}")

    def pool_bytes(self):
        """What zram had at most."""
        return int((self.of_zram() / "mm_stat").read_text().split()[4]) if self.number else 0

    def remove(self):
        if self.device:
            subprocess.run(["swapoff", self.device], check=True)
        if self.number:
            (self.of_zram() / "reset").write_text("1")
            Path("/sys/class/zram-control/hot_remove").write_text(self.number)
        elif self.device:
            self.device.unlink()


def run(case, command, system, limit, most):
    """One run in a group of this limit in bytes; of none where that is None."""
    case.prepare()
    swap = Swap(system, case.work)
    cpu = Path(f"/sys/fs/cgroup/cpuacct/pleat-go.{os.getpid()}")
    cpu.mkdir()
    group = jobs.Group(limit=limit, swap=system in ("swap", "zram"))

    def enter():
        group.enter()
        (cpu / "cgroup.procs").write_text(str(os.getpid()))

    try:
        before = busy_s()
        began = time.monotonic()
        with tempfile.TemporaryFile(dir=case.work) as said:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=case.environment,
                                       start_new_session=True, preexec_fn=enter)
            try:
                status = process.wait(most)
            except subprocess.TimeoutExpired:
                status = None
            seconds = time.monotonic() - began
            others = (busy_s() - before - spend_s(cpu)) / seconds
            used = int((group.path / "memory.max_usage_in_bytes").read_text())
            kills = group.kills()
            group.leave()
            process.wait()
            said.seek(0)
            text = said.read().decode(errors="replace")
        result = case.result(text) if status == 0 else None
        total = used + swap.pool_bytes()
        told = "not at its end" if status is None else f"killed {kills} times" if kills else f"status {status}"
        print(f"  {system:6} {seconds:7.1f} s, limit {(limit or 0) >> 20} MB, {total >> 20} MB in all, others {others:.1f}, {told}, {result}",
              file=sys.stderr, flush=True)
        return Run(seconds, result, total, others, text), group.peak
    finally:
        if group.path.exists():
            group.leave()
        while cpu.exists():
            try:
                cpu.rmdir()
            except OSError:  # the last of it is on its way out
                time.sleep(0.05)
        swap.remove()


def run_with_zram(case, memory, known, most):
    """With L and zram's pool as large as `memory`; `known` keeps L. None where none was found."""
    limit = known.get(memory, memory * 3 // 4)
    for _ in range(SEARCHES):
        one, _ = run(case, case.command, "zram", limit, most)
        over = one.total - memory
        if abs(over) <= TOLERANCE * memory or (one.result is None and over > 0):
            known[memory] = limit
            return one
        limit = max(8 << 20, int(limit - over / 0.7))
    return None


def row(name, case, natural, right, share, arguments, pleat, alone):
    memory = natural * share // 100 >> 20 << 20
    runs = {system: [] for system in arguments.systems.split(",")}
    known, dead = {}, set()
    for _ in range(arguments.runs):
        for system, ended in runs.items():
            if system in dead:  # it would only take as long again
                continue
            if system == "pleat":
                whole = [pleat, "run", "--memory", str(memory), "--swap-dir", case.work, "--", *case.command]
                one, _ = run(case, whole, system, memory * 102 // 100, arguments.most)
            elif system == "zram":
                one = run_with_zram(case, memory, known, arguments.most)
            else:
                one, _ = run(case, case.command, system, memory, arguments.most)
            ended.append(one)
            if not one or one.result is None:
                dead.add(system)

    def cell(ended):
        good = sorted(one.seconds for one in ended if one and one.result == right)
        if not good:
            return f"not in {arguments.most:.0f} s"
        text = f"{good[len(good) // 2]:.1f} s ({good[0]:.1f} to {good[-1]:.1f})"
        return text if len(good) == len(ended) else f"{text}, {len(good)} of {len(ended)}"

    others = [one.others for ended in runs.values() for one in ended if one]
    cells = " | ".join(cell(ended) for ended in runs.values())
    print(f"| {name} | {natural >> 20}M | {alone:.1f} s | {share} % | {cells} | {min(others):.1f} to {max(others):.1f} |", flush=True)
    return all(one and one.result == right for one in runs.get("pleat", []))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--shares", default="60,40")
    parser.add_argument("--systems", default="pleat,swap,zram")
    parser.add_argument("--most", type=float, default=300)
    arguments = parser.parse_intermixed_args()
    if os.geteuid() != 0 or not jobs.Group.possible() or not shutil.which("go"):
        print("SKIP: root, a memory cgroup of version 1, and go are needed")
        sys.exit(77)
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        sys.exit("there is swap already: figures would mean nothing")
    pleat = Path(arguments.build).resolve() / "pleat"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    systems = arguments.systems.replace(",", " | ")
    print(f"| case | needs | freely | share | {systems} | others |\n|---|---|---|---|{'---|' * (systems.count('|') + 1)}---|", flush=True)
    good = True
    for name in arguments.cases or ["map", "map-uniform", "build"]:
        work = Path(tempfile.mkdtemp(prefix="pleat-go-", dir="/var/tmp"))
        try:
            case = Case(name, work)
            free, natural = run(case, case.command, "none", None, arguments.most)
            if free.result is None:
                sys.exit(f"{name} fails without a limit:\n{free.said}")
            for share in arguments.shares.split(","):
                good &= row(name, case, natural, free.result, int(share), arguments, pleat, free.seconds)
        finally:
            shutil.rmtree(work)
    sys.exit(0 if good else 1)


main()
