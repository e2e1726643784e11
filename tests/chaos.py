#!/usr/bin/env python3
"""Jobs that check all their memory, disturbed at random: what becomes of them?

    tests/chaos.py DIR_OF_BUILD [--rounds 40] [--seed N] [--first ROUND] [--only KIND] [-v]

A round starts tests/programs/chaos.c under pleat, at a third to a quarter of the memory it works on, and disturbs it at a
random moment: kills the supervisor, its keeper, both, a process, the first process or all of them, interrupts, stops and
continues, fills the disk or has it fail. Then it counts

    wrong       bytes that were not what they ought to be
    survivors   jobs of which a process lives a second after it ought to have ended
    silent      jobs that ended otherwise than their program would have, and nothing was said
    lost        jobs that did not come to their end though nothing was taken from them, or did not end at all

All are to be 0; the exit status says whether they are. One more is told and is no failure (docs/death.md, "What is not covered"):

    unmet       survivors that pleat had not met yet, supervisor and keeper killed by one stroke, without a memory cgroup
                of the job's own. They miss no memory, and nobody is left who could say anything

Everything a round does follows from the seed and its number, but not how the kernel lets its processes take turns. Needs
Python and a C compiler; as root it adds hard limits and a full disk. The exit status is 77 where pleat cannot work.
"""
import argparse
import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, namedtuple
from pathlib import Path

HERE = Path(__file__).resolve().parent
MARK = "PLEAT_CHAOS_ROUND"
GONE_WITHIN = 1.0
# A round's program works for WORK seconds; a job that is not at its end after so long never comes there.
WORK = 2.0
END_WITHIN = 90.0
FAULTS = ["no-space", "read-error", "write-error", "truncated", "short-write", "bit-flip", "swapped", "replayed"]
FAILURES = ["wrong", "survivors", "silent", "lost"]
# How a job may end; any other way is `lost`.
FINISHED, PLEAT_FAILED = 0, 125

Process = namedtuple("Process", "pid parent command")


def processes(mark):
    """The processes of a round that live, by the variable that they were all started with."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if mark not in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                continue
            command, rest = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)
        except OSError:
            continue  # it has just ended, or is somebody else's
        state, parent = rest.split()[:2]
        if state not in "ZX":
            found.append(Process(int(entry), int(parent), command.split("(", 1)[1]))
    return found


def where(process):
    """Where its threads are, as far as that can be told."""
    lines = []
    for task in sorted(Path(f"/proc/{process.pid}/task").glob("*")):
        try:
            stack = " < ".join(line.split()[-1].split("+")[0] for line in (task / "stack").read_text().splitlines()[:5])
            lines.append(f"\n    {process.command} {process.pid} of {process.parent}, thread {(task / 'comm').read_text().strip()}: {stack}")
        except OSError:
            lines.append(f"\n    {process.command} {process.pid}")
    return "".join(lines)


def adopt_orphans():
    """What a killed supervisor leaves becomes ours: not every container has an init that reaps."""
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def has_agent(process):
    try:
        return any("pleat-agent" in (task / "comm").read_text() for task in Path(f"/proc/{process.pid}/task").glob("*"))
    except OSError:
        return False


def memory_cgroup():
    """A directory in which memory cgroups can be made, and the name of the file with the limit; or nothing."""
    if os.geteuid() != 0:
        return None
    own = {}
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        own[controllers] = path.lstrip("/")
    for place in [Path("/sys/fs/cgroup/memory", own.get("memory", "")), Path("/sys/fs/cgroup/memory")]:
        if (place / "memory.limit_in_bytes").exists():
            return place, "memory.limit_in_bytes"
    place = Path("/sys/fs/cgroup")
    handed_out = place / "cgroup.subtree_control"
    if handed_out.exists() and "memory" in handed_out.read_text().split():
        return place, "memory.max"
    return None


class SmallDisk:
    """A file system of 96 MiB, to be filled; only for root."""

    def __init__(self, work):
        self.image, self.place = work / "disk", work / "small"
        self.place.mkdir()
        with open(self.image, "wb") as image:
            image.truncate(96 << 20)
        commands = [["mkfs.ext4", "-q", "-m", "0", self.image], ["mount", "-o", "loop", self.image, self.place]]
        self.is_there = os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None
        self.is_there = self.is_there and all(subprocess.run(c, stderr=subprocess.DEVNULL).returncode == 0 for c in commands)

    def fill(self):
        with open(self.place / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(1 << 16))
            except OSError:
                pass

    def clear(self):
        (self.place / "filler").unlink(missing_ok=True)

    def remove(self):
        if self.is_there:
            subprocess.run(["umount", self.place])


class Round:
    """One job, and what is done to it."""

    def __init__(self, chaos, number, kind):
        self.chaos, self.number, self.kind = chaos, number, kind
        self.random = random.Random(f"{chaos.seed}/{number}")
        self.mark = f"{MARK}={os.getpid()}.{number}".encode()
        self.budget = self.random.choice([20, 24, 32])
        self.at = self.random.choice([0.0, 0.02, 0.1, 0.3, 1.0, 1.5]) * self.random.random()
        self.log = chaos.work / f"{number}.log"
        self.findings = []
        self.group = None
        self.has_own_group = False

    def command(self):
        own, chaos = self.random, self.chaos
        program = [str(chaos.program), str(WORK), str(own.choice([3, 4]) * self.budget), str(own.getrandbits(30)), str(chaos.work)]
        if self.kind == "disk-fails":
            fault, after = own.choice(FAULTS), own.choice([0, 3, 30, 200])
            times = own.choice(["1", "20", "always"])
            return [chaos.build / "faulty-run", fault, str(after), times, "--memory", str(self.budget << 20),
                    str(chaos.work), str(chaos.build / "libpleat_agent.so"), "--", *program]
        swap = chaos.disk.place if self.kind == "disk-full" else chaos.work
        flags = ["--memory", f"{self.budget}M", "--swap-dir", str(swap)]
        self.has_own_group = chaos.groups is not None and own.random() < 0.67
        flags += ["--cgroup", "auto" if self.has_own_group else "never"] + own.choice([[], ["--kill-on-exit"]])
        return [chaos.build / "pleat", "run", *flags, "--", *program]

    def start(self):
        command = self.command()
        # Without a group of its own a job may be killed at a hard limit (docs/limits.md).
        self.group = self.chaos.make_group(self.budget) if self.has_own_group and self.random.random() < 0.7 else None
        name, value = self.mark.decode().split("=")
        environment = dict(os.environ, **{name: value})
        enter = (lambda: (self.group / "cgroup.procs").write_text("0")) if self.group else None
        with open(self.log, "ab") as log:
            self.pleat = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                                          start_new_session=True, preexec_fn=enter)

    def said(self):
        return self.log.read_text(errors="replace")

    def find(self, what, detail):
        self.findings.append((what, detail))

    def kill(self, pids, number=signal.SIGKILL):
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass

    def stop_for_a_while(self, pids):
        self.kill(pids, signal.SIGSTOP)
        time.sleep(self.random.choice([0.01, 0.1, 0.4]))
        self.kill(pids, signal.SIGCONT)

    def disturb(self):
        kind, pleat = self.kind, self.pleat.pid
        alive = sorted(processes(self.mark))
        keepers = [p.pid for p in alive if p.command.startswith("pleat-keeper")]
        programs = [p for p in alive if p.command == "chaos"]
        self.disturbed = len(programs)
        first = [p.pid for p in programs if p.parent == pleat]
        others = [p.pid for p in programs if p.parent != pleat]
        if kind == "kill-supervisor":
            self.kill([pleat])
        elif kind == "kill-keeper":
            self.kill(keepers)
        elif kind == "kill-both":
            self.kill([pleat, *keepers])
        elif kind == "kill-process":
            self.kill(others and [self.random.choice(others)])
        elif kind == "kill-first":
            self.kill(first)
        elif kind == "kill-all":
            os.killpg(pleat, signal.SIGKILL)
        elif kind == "terminate":
            self.kill([pleat], signal.SIGTERM)
        elif kind == "interrupt":
            os.killpg(pleat, signal.SIGINT)
        elif kind == "stop-supervisor":
            self.stop_for_a_while([pleat])
        elif kind == "stop-process":
            self.stop_for_a_while(others and [self.random.choice(others)])
        elif kind == "stop-all":
            self.stop_for_a_while([p.pid for p in alive])
        elif kind == "disk-full":
            self.chaos.disk.fill()

    def wait_until_all_are_gone(self, within):
        end = time.monotonic() + within
        while left := processes(self.mark):
            if time.monotonic() > end:
                return left
            time.sleep(0.01)
        return []

    def run(self):
        self.start()
        time.sleep(self.at)
        self.disturb()
        try:
            self.pleat.wait(END_WITHIN)
        except subprocess.TimeoutExpired:
            self.find("lost", f"not at its end after {END_WITHIN:.0f} s")
            self.kill([p.pid for p in processes(self.mark)])
            self.pleat.wait()
        self.judge(self.pleat.returncode)
        self.clean()

    def judge(self, status):
        left = self.wait_until_all_are_gone(GONE_WITHIN)
        is_unmet = bool(left) and self.kind == "kill-both" and not self.has_own_group and not any(map(has_agent, left))
        if left:
            self.find("unmet" if is_unmet else "survivors", "".join(map(where, left)))
        said = self.said()
        if "WRONG" in said:
            self.find("wrong", next(line for line in said.splitlines() if "WRONG" in line))
        has_begun, is_done = "begun" in said, "ok chaos" in said
        if status == FINISHED:
            if not is_done:
                self.find("lost", "status 0 before the program's end")
        elif status == PLEAT_FAILED:
            if not any(line.startswith(("pleat:", "faulty-run:")) for line in said.splitlines()):
                self.find("silent", "status 125")
            if self.kind not in ("disk-full", "disk-fails"):
                self.find("lost", "status 125")
        elif status not in self.endings():
            self.find("lost", f"status {status}")
        if self.kind in ("kill-supervisor", "kill-both") and status == -signal.SIGKILL and has_begun and not is_done:
            if "pleat" not in said and not is_unmet:
                self.find("silent", "killed")

    def endings(self):
        kill, term, interrupt = signal.SIGKILL, signal.SIGTERM, signal.SIGINT
        return {
            "kill-supervisor": [-kill],
            "kill-both": [-kill],
            "kill-all": [-kill],
            "kill-first": [-kill, 128 + kill],
            "terminate": [-term, 128 + term],
            "interrupt": [-interrupt, 128 + interrupt],
        }.get(self.kind, [])

    def clean(self):
        """Leaves nothing of the round, however it ended."""
        self.kill([p.pid for p in processes(self.mark)])
        self.wait_until_all_are_gone(END_WITHIN)
        reap()
        self.chaos.disk.clear()
        if self.group:
            self.chaos.remove_group(self.group)
        if not self.findings:
            self.log.unlink(missing_ok=True)


class Chaos:
    """All rounds."""

    def __init__(self, arguments, work):
        self.build = arguments.build.resolve()
        self.seed = arguments.seed
        self.work = work
        self.program = work / "chaos"
        compiled = ["cc", "-O2", "-pthread", "-o", self.program, HERE / "programs/chaos.c"]
        subprocess.run(compiled, check=True)
        self.groups = memory_cgroup()
        self.disk = SmallDisk(work)
        self.kinds = ["nothing", "kill-supervisor", "kill-keeper", "kill-both", "kill-process", "kill-first", "kill-all",
                      "terminate", "interrupt", "stop-supervisor", "stop-process", "stop-all"]
        self.add_kind("disk-full", self.disk.is_there, "only root can make a small disk, with mkfs.ext4")
        self.add_kind("disk-fails", (self.build / "faulty-run").exists(), "faulty-run was not built")

    def add_kind(self, kind, is_possible, why_not):
        if is_possible:
            self.kinds.append(kind)
        else:
            print(f"SKIP chaos: {kind}: {why_not}")

    def make_group(self, budget):
        place, file = self.groups
        group = place / f"pleat-chaos.{os.getpid()}"
        group.mkdir()
        (group / file).write_text(str((budget << 20) // 100 * 102))
        return group

    def remove_group(self, group):
        for _ in range(100):
            try:
                return group.rmdir()
            except OSError:
                time.sleep(0.02)
                # What a job that was killed with all its helpers leaves is an empty group in this one.
                for inner in [p for p in group.iterdir() if p.is_dir()]:
                    try:
                        inner.rmdir()
                    except OSError:
                        pass
        raise SystemExit(f"{group} cannot be removed")


def table(rounds, found):
    columns = FAILURES + ["unmet"]
    print("\n| disturbed by | rounds | " + " | ".join(columns) + " |\n|---|" + "---|" * (len(columns) + 1))
    for kind in rounds:
        print(f"| {kind} | {rounds[kind]} | " + " | ".join(str(found[kind, what]) for what in columns) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if subprocess.run([arguments.build / "pleat", "doctor"], stdout=subprocess.DEVNULL).returncode != 0:
        print("SKIP chaos: pleat cannot work here; `pleat doctor` says why")
        sys.exit(77)
    adopt_orphans()
    rounds, found = Counter(), Counter()
    with tempfile.TemporaryDirectory(prefix="pleat-chaos-", dir="/var/tmp") as work:
        chaos = Chaos(arguments, Path(work))
        try:
            for number in range(arguments.first, arguments.first + arguments.rounds):
                kind = arguments.only or chaos.kinds[number % len(chaos.kinds)]
                one = Round(chaos, number, kind)
                try:
                    one.run()
                except BaseException:
                    one.clean()
                    raise
                rounds[kind] += 1
                if arguments.verbose:
                    print(f"round {number}: {kind} after {one.at:.2f} s: status {one.pleat.returncode}, {one.disturbed} processes", flush=True)
                for what, detail in one.findings:
                    found[kind, what] += 1
                    print(f"round {number} (seed {chaos.seed}), {kind} after {one.at:.2f} s: {what}: {detail}")
                    print("".join(f"    {line}\n" for line in one.said().splitlines()[-12:]), end="", flush=True)
        finally:
            chaos.disk.remove()
    table(rounds, found)
    sys.exit(1 if any(found[kind, what] for kind in rounds for what in FAILURES) else 0)


main()
