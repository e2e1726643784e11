"""Runs one command as a job, in a directory of its own, and says what became of it and how much memory it had at most.

The memory is that of all its processes, from a memory cgroup (version 1) around it; where there is none, that of the largest process.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import namedtuple
from pathlib import Path

Ended = namedtuple("Ended", "status seconds peak_kib said")

LOOK_EVERY_S = 0.02


class Group:
    """A memory cgroup below that of this process, whose use is looked at all the time; with a limit in bytes, and with swap or without."""

    def __init__(self, limit=None, swap=True):
        self.peak = 0
        self.path = self.make()
        if not self.path:
            return
        if limit:
            (self.path / "memory.limit_in_bytes").write_text(str(limit))
        (self.path / "memory.swappiness").write_text("60" if swap else "0")
        self.over = threading.Event()
        self.looker = threading.Thread(target=self.look)
        self.looker.start()

    @staticmethod
    def make():
        own = re.search(r"^\d+:memory:(.*)$", Path("/proc/self/cgroup").read_text(), re.M)
        for top in ([f"/sys/fs/cgroup/memory{own[1]}", "/sys/fs/cgroup/memory"] if own else []):
            path = Path(top) / f"pleat-suite.{os.getpid()}"
            try:
                path.mkdir()
                return path
            except OSError:
                continue
        return None

    @classmethod
    def possible(cls):
        if path := cls.make():
            path.rmdir()
        return path is not None

    def look(self):
        while not self.over.wait(LOOK_EVERY_S):
            # Not the page cache: what a file of the job's has in memory is no need of the job's.
            used = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
            self.peak = max(self.peak, int(used["total_rss"]) + int(used["total_mapped_file"]))

    def enter(self):
        if self.path:
            (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def leave(self):
        if not self.path:
            return
        self.over.set()
        self.looker.join()
        for _ in range(100):
            for path in reversed(self.groups()):
                for pid in (path / "cgroup.procs").read_text().split():
                    try:
                        os.kill(int(pid), signal.SIGKILL)
                    except ProcessLookupError:
                        pass
                try:
                    path.rmdir()
                except OSError:  # who was just killed is still in it
                    pass
            if not self.path.exists():
                return
            time.sleep(0.1)
        sys.exit(f"{self.path} cannot be removed")

    def groups(self):
        """It, and those that jobs have made in it for themselves."""
        return [self.path, *(path for path in self.path.iterdir() if path.is_dir())]

    def kills(self):
        """How many processes the kernel has killed in it for want of memory."""
        return sum(int(re.search(r"oom_kill (\d+)", (path / "memory.oom_control").read_text())[1]) for path in self.groups())


def directory(owner=None):
    """For one run; of the user OWNER, where that is not this one."""
    work = Path(tempfile.mkdtemp(prefix="pleat-suite-", dir="/var/tmp"))
    if owner:
        shutil.chown(work, owner)
    return work


def run(command, work, at, limit, group):
    """The job's processes that are left after LIMIT seconds are killed."""
    began = time.monotonic()
    with open(work / "said", "wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=at,
                                   start_new_session=True, preexec_fn=group.enter if group else None)
    killer = threading.Timer(limit, os.killpg, [process.pid, signal.SIGKILL])
    killer.start()
    _, status, usage = os.wait4(process.pid, 0)
    killer.cancel()
    process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.monotonic() - began
    if group:
        group.leave()
    said = (work / "said").read_text(errors="replace")
    if seconds >= limit:
        said += f"\nnot at its end after {limit:.0f} s"
    peak = group.peak >> 10 if group and group.peak else usage.ru_maxrss
    return Ended(process.returncode, seconds, peak, said)
