"""What the benchmarks of `pleat mount` share: a throttled disk of their own, memory cgroups, the systems
compared, and results as JSON, Markdown and SVG. Needs root, cgroup v1 (memory, blkio, cpuacct) and
/dev/fuse. Whatever was set up is undone at the end, also after Ctrl-C or an error.
"""
import argparse
import contextlib
import fcntl
import html
import json
import math
import os
import random
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MB = 1 << 20
CGROUPS = Path("/sys/fs/cgroup")
PROJECT = Path(__file__).resolve().parents[2]
TOOL_SECONDS, MOUNT_SECONDS, END_SECONDS = 300, 20, 60


def fail(what):
    sys.exit(f"{Path(sys.argv[0]).name}: {what}")


def need(**programs):
    """Ends with one line for each program that is missing: need(wrk="wrk") is program="package"."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    missing = [f"missing: {program}    get it: sudo apt-get install {package}"
               for program, package in programs.items() if not shutil.which(program)]
    if missing:
        sys.exit("\n".join(missing))


def tool(*argv, **options):
    """Runs a helper program to its end; its output."""
    done = subprocess.run(list(map(str, argv)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          stdin=subprocess.DEVNULL, timeout=TOOL_SECONDS, **options)
    if done.returncode:
        raise RuntimeError(f"{shlex.join(map(str, argv))}: {done.stdout.strip()[-400:]}")
    return done.stdout


def options(description, memory, **defaults):
    """The flags that every benchmark has; the caller adds its own and parses."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    flag = parser.add_argument
    flag("-m", "--memory", type=int, default=memory, metavar="MB", help="default %(default)s")
    flag("-n", "--runs", type=int, default=defaults.get("runs", 3), help="default %(default)s")
    flag("-s", "--systems", default=defaults.get("systems", "native,pleat"),
         help="comma-separated, of: " + ", ".join(SYSTEMS) + "; default %(default)s")
    flag("--pleat", default=None, metavar="FILE", help="the pleat binary; default target/release/pleat")
    flag("--passthrough", default=None, metavar="FILE",
         help="the example of that name, which mounts without any cache of pleat's; default "
              "target/release/examples/passthrough (cargo build --release --examples -p pleat-mount)")
    flag("--iops", type=int, default=defaults.get("iops", 3000),
         help="limit of the disk's reads and of its writes per second, 0: none; default %(default)s")
    flag("--disk-mb", type=int, default=defaults.get("disk_mb", 4096), help="default %(default)s")
    flag("--dir", type=Path, default=Path("/var/tmp"), help="where the disk's image lies; default %(default)s")
    flag("-o", "--output", type=Path, default=Path(Path(sys.argv[0]).stem + "-results"),
         help="directory of the results; default %(default)s")
    return parser


def settle(args):
    """Checks the arguments that need it."""
    target = Path(os.environ.get("CARGO_TARGET_DIR") or PROJECT / "target") / "release"
    args.pleat = str(Path(args.pleat or target / "pleat").resolve())
    args.passthrough = str(Path(args.passthrough or target / "examples/passthrough").resolve())
    args.systems = args.systems.split(",")
    unknown = [name for name in args.systems if name not in SYSTEMS]
    if unknown:
        fail(f"unknown system {unknown[0]}; there are {', '.join(SYSTEMS)}")
    used = {SYSTEMS[name][0] for name in args.systems}
    for kind, path, remedy in (("pleat", args.pleat, "run make, or give --pleat"), (
            "passthrough", args.passthrough, "give --passthrough, or leave such systems out with -s")):
        if kind in used and not shutil.which(path):
            fail(f"there is no {path}: {remedy}")
    args.output = args.output.resolve()
    args.output.mkdir(parents=True, exist_ok=True)
    return args


# ---- the machine ----

class Bench:
    """The disk, the cgroups and the processes of one benchmark; undone in reverse order at the end."""

    def __init__(self, args):
        self.args, self.stack, self.made = args, contextlib.ExitStack(), 0

    def __enter__(self):
        if os.geteuid():
            fail("needs root: run it with sudo")
        if not (CGROUPS / "memory/cgroup.procs").exists():
            fail("needs cgroup v1; boot with systemd.unified_cgroup_hierarchy=0")
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(which, interrupted)
        lock = os.open(CGROUPS / "memory", os.O_RDONLY)
        self.stack.callback(os.close, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            fail("another benchmark is under way")
        with contextlib.ExitStack() as undo:
            undo.push(self.stack.__exit__)
            self.work = Path(tempfile.mkdtemp(prefix="pleat-bench.", dir=self.args.dir))
            self.stack.callback(shutil.rmtree, self.work, ignore_errors=True)
            self.disk = Disk(self)
            undo.pop_all()
        return self

    def __exit__(self, *exception):
        for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(which, signal.SIG_IGN)
        return self.stack.__exit__(*exception)

    def fresh(self, name):
        """A name that nothing else has."""
        self.made += 1
        return f"{name}-{self.made}"


def interrupted(number, _frame):
    sys.exit(128 + number)


class Disk:
    """ext4 on a loop device that reads and writes the image directly, limited in operations."""

    def __init__(self, bench):
        self.image, self.path = bench.work / "disk.img", bench.work / "disk"
        self.path.mkdir()
        tool("fallocate", "-l", f"{bench.args.disk_mb}M", self.image)
        self.device = tool("losetup", "--find", "--show", "--direct-io=on", self.image).strip()
        bench.stack.callback(tool, "losetup", "--detach", self.device)
        tool("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", self.device)
        bench.stack.callback(self.unmount)
        self.mount()
        self.number = Path("/sys/block", Path(self.device).name, "dev").read_text().strip()
        self.iops = bench.args.iops
        bench.stack.callback(self.limit, 0)

    def mount(self):
        tool("mount", "-o", "noatime", self.device, self.path)

    def unmount(self):
        for _ in range(100):
            if not os.path.ismount(self.path):
                return
            if not subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL).returncode:
                return
            time.sleep(0.1)
        tool("umount", "-l", self.path)

    def limit(self, iops):
        """In the root group: also what the kernel writes back later, on whose behalf ever."""
        for way in ("read", "write"):
            rule = CGROUPS / f"blkio/blkio.throttle.{way}_iops_device"
            rule.write_text(f"{self.number} {iops}")

    def cold(self):
        """Nothing of it is in memory afterwards, and the limit holds."""
        self.limit(0)
        self.unmount()
        self.mount()
        self.limit(self.iops)

    def counters(self):
        stat = list(map(int, Path("/sys/block", Path(self.device).name, "stat").read_text().split()))
        return {"reads": stat[0], "read_mb": stat[2] / 2048, "writes": stat[4], "write_mb": stat[6] / 2048}


class Group:
    """A memory cgroup with a hard limit; limit_mb 0 is none. Counts the processor time too."""

    def __init__(self, bench, limit_mb):
        name = f"pleat-bench-{os.getpid()}-{bench.fresh('group')}"
        self.memory, self.cpu = CGROUPS / "memory" / name, CGROUPS / "cpuacct" / name
        self.stack = contextlib.ExitStack()
        bench.stack.callback(self.stack.close)
        for path in (self.memory, self.cpu):
            path.mkdir()
            self.stack.callback(self._remove, path)
        if limit_mb:
            for file in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
                with contextlib.suppress(FileNotFoundError):  # no swap accounting
                    (self.memory / file).write_text(str(int(limit_mb * MB)))

    def enter(self):
        for path in (self.memory, self.cpu):
            (path / "cgroup.procs").write_text(str(os.getpid()))

    def cpu_seconds(self):
        return int((self.cpu / "cpuacct.usage").read_text()) / 1e9

    def figures(self):
        stat = dict(line.split() for line in (self.memory / "memory.stat").read_text().splitlines())
        return {"cache_mb": int(stat["total_cache"]) / MB, "rss_mb": int(stat["total_rss"]) / MB,
                "used_mb": int((self.memory / "memory.usage_in_bytes").read_text()) / MB}

    def oom_kills(self):
        control = (self.memory / "memory.oom_control").read_text().split()
        return int(control[control.index("oom_kill") + 1])

    def close(self):
        self.stack.close()

    def _remove(self, path):
        for _ in range(400):
            with contextlib.suppress(OSError):
                for pid in (path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), signal.SIGKILL)  # what still runs in our own group
                if path == self.memory:
                    (path / "memory.force_empty").write_text("0")
                path.rmdir()
            if not path.exists():
                return
            time.sleep(0.05)
        print(f"cannot remove {path}", file=sys.stderr)


# ---- the systems compared ----

# Name: what serves the files, and with which preset or kind of pass-through: that of the FUSE library, or
# pleat's own tree of files without its cache.
SYSTEMS = {
    "native": ("native", ""),
    "pass-through": ("passthrough", "library"),
    "direct": ("passthrough", "direct"),
    "pleat": ("pleat", "pleat"),
    "pleat-all": ("pleat", "pleat/admission=all"),
    "pleat-none": ("pleat", "none"),
}


class Served:
    """A directory of the disk as one of the systems shows it, while the block lasts.

    `memory` is what the system itself may use (MB); `group` is where its process runs, if anywhere.
    After the block `stats` has what pleat said at its end.
    """

    def __init__(self, bench, system, source, memory, group=None):
        self.bench, self.source, self.group, self.memory = bench, Path(source), group, memory
        self.kind, self.preset = SYSTEMS[system]
        self.process, self.stats = None, {}

    def __enter__(self):
        if self.kind == "native":
            self.path = self.source
            return self
        self.path = self.bench.work / self.bench.fresh("mount")
        self.path.mkdir()
        self.file = self.path.with_suffix(".json")
        argv = [self.bench.args.passthrough, self.preset]
        if self.kind == "pleat":
            argv = [self.bench.args.pleat, "mount", "--memory", f"{self.memory}M", "--preset", self.preset,
                    "--stats", self.file]
        self.log = open(self.path.with_suffix(".log"), "w+")
        self.process = subprocess.Popen([*map(str, argv), str(self.source), str(self.path)],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                        preexec_fn=self.group and self.group.enter, start_new_session=True)
        try:
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self):
        end = time.monotonic() + MOUNT_SECONDS
        while not os.path.ismount(self.path):
            if self.process.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                raise RuntimeError(f"not mounted: {self.log.read().strip()[-400:]}")
            time.sleep(0.05)

    def rss_mb(self):
        if not self.process:
            return 0
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def __exit__(self, *_):
        if not self.process:
            return
        try:
            if self.kind == "passthrough":  # ends when it is unmounted
                subprocess.run(["umount", self.path], stderr=subprocess.DEVNULL)
            if not self._ended(2 if self.kind == "passthrough" else 0):
                self.process.send_signal(signal.SIGTERM)
                if not self._ended(END_SECONDS):
                    print(f"{self.kind} {self.preset} does not end", file=sys.stderr)
            elif self.kind == "pleat":
                print(f"pleat {self.preset} ended with {self.process.returncode}", file=sys.stderr)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            while str(self.path) in mount_points():
                tool("umount", "-l", self.path)
            self.log.close()
        with contextlib.suppress(OSError, ValueError):
            self.stats = json.loads(self.file.read_text())

    def _ended(self, seconds):
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode is not None


def mount_points():
    """Also those whose process is dead, which os.path.ismount takes for nothing."""
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def run_in(group, argv, timeout, say="", **options):
    """Runs a program in a group, `say` on its stdin; its stdout. Its session ends when it takes too long."""
    child = subprocess.Popen(list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, preexec_fn=group and group.enter,
                             start_new_session=True, **options)
    try:
        out, err = child.communicate(say, timeout)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise
    if child.returncode:
        raise RuntimeError(f"{argv[0]} ended with {child.returncode}: {(err or out).strip()[-400:]}")
    return out


class Meter:
    """Differences of the disk's and a group's counters over a block, per second."""

    def __init__(self, disk, group=None):
        self.disk, self.group = disk, group

    def __enter__(self):
        self.before = self._now()
        return self

    def _now(self):
        cpu = self.group.cpu_seconds() if self.group else 0
        return {"seconds": time.monotonic(), "cpu": cpu, **self.disk.counters()}

    def __exit__(self, *_):
        now = self._now()
        seconds = now["seconds"] - self.before["seconds"]
        rates = {key: (now[key] - self.before[key]) / seconds for key in now if key != "seconds"}
        self.rates = {"seconds": seconds, "cpus": rates.pop("cpu"),
                      **{f"disk_{key}_s": value for key, value in rates.items()}}


# ---- data ----

WORDS = 3000


def rows(seed, kind, count=3000):
    """Lines of HTML, JSON or plain text that pack about as real ones do."""
    rnd = random.Random(f"{seed} {kind}")
    words = ["".join(rnd.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=rnd.randint(3, 9)))
             for _ in range(WORDS)]
    word = lambda: words[min(WORDS - 1, int(rnd.expovariate(1 / 300)))]
    number = lambda: rnd.randrange(10000)
    makers = {
        "html": lambda: f'  <tr class="entry"><td class="name"><a href="/catalogue/entry/{number()}.html">'
                        f'{word()} {word()}</a></td><td class="price">{number() / 100:.2f}</td></tr>\n',
        "json": lambda: f'    {{"identifier": {number()}, "name": "{word()} {word()}", "available": true, '
                        f'"currency": "EUR", "supplier": null, "category": "{word()}", "price": {number() / 100:.2f}}},\n',
        "text": lambda: " ".join([word(), "the", word(), "of", word(), "and", "that", word(), "is"]) + "\n" +
                        "------------------------------------------------------------\n",
    }
    return [makers[kind]().encode() for _ in range(count)]


def text_of(pool, rnd, size):
    """`size` bytes of lines of a pool."""
    mean = sum(map(len, pool[:100])) / 100
    return b"".join(rnd.choices(pool, k=int(size / mean * 1.2) + 4))[:size].ljust(size, b"\n")


def lz4_ratio(pieces):
    """How the pages of these pieces pack with LZ4, one by one; None where liblz4 is not installed."""
    import ctypes
    try:
        lz4 = ctypes.CDLL("liblz4.so.1")
    except OSError:
        return None
    out, before, after = ctypes.create_string_buffer(8192), 0, 0
    for piece in pieces:
        for at in range(0, len(piece), 4096):
            page = piece[at:at + 4096]
            before += len(page)
            after += lz4.LZ4_compress_default(page, out, len(page), 8192)
    return before / after


def zipf(count, alpha, draws, seed=1):
    """Draws of 0..count by a Zipf law; which of them is popular is random but the same for a seed."""
    rnd = random.Random(seed)
    order = list(range(count))
    rnd.shuffle(order)
    weights = [1 / rank ** alpha for rank in range(1, count + 1)]
    return rnd.choices(order, weights, k=draws)


# ---- results ----

def median_of(runs, key):
    values = [run[key] for run in runs if run.get(key) is not None]
    return statistics.median(values) if values else None


def number(value):
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def markdown(header, lines):
    cells = [header, ["---"] * len(header)] + [[number(cell) for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def save(args, name, runs, tables):
    """Writes NAME.json and NAME.md into the output directory and prints the tables."""
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(args).items()}
    version = subprocess.run([args.pleat, "--version"], capture_output=True, text=True).stdout.strip() \
        if shutil.which(args.pleat) else ""
    machine = {"kernel": os.uname().release, "cpus": os.cpu_count(), "pleat": version,
               "date": time.strftime("%Y-%m-%d")}
    result = {"machine": machine, "options": settings, "runs": runs}
    (args.output / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    head = f"`{name}`, {machine['date']}, {version}, Linux {machine['kernel']}, {machine['cpus']} CPUs, " \
           f"M = {args.memory} MB, disk limited to {args.iops or 'no'} operations/s\n\n"
    text = head + "\n".join(f"{title}\n\n{table}" if title else table for title, table in tables)
    (args.output / f"{name}.md").write_text(text)
    print(text, flush=True)


COLOURS = ["#1b6ca8", "#c8553d", "#588157", "#8e5ea2", "#7f7f7f", "#d4a017"]


def plot(path, title, x_label, panels):
    """Small line charts below one another. panels: [(y label, {series: [(x, y), ...]})]."""
    width, height, left, top, right = 640, 170, 70, 40, 150
    total = top + len(panels) * (height + 30) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{total}" '
           f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="white"/>',
           f'<text x="{left}" y="18" font-size="14">{html.escape(title)}</text>']
    for index, (label, series) in enumerate(panels):
        out += panel(label, series, left, top + index * (height + 30), width - left - right, height - 30, index == 0)
    out.append(f'<text x="{left + (width - left - right) / 2}" y="{total - 8}" text-anchor="middle">'
               f'{html.escape(x_label)}</text></svg>')
    Path(path).write_text("\n".join(out) + "\n")


def panel(label, series, x0, y0, width, height, legend):
    points = [point for line in series.values() for point in line if point[1] is not None]
    if not points:
        return []
    x_max, y_max = max(x for x, _ in points), nice(max(y for _, y in points))
    at = lambda x, y: f"{x0 + x / x_max * width:.1f},{y0 + height - y / y_max * height:.1f}"
    out = [f'<text x="{x0}" y="{y0 - 5}" fill="#333">{html.escape(label)}</text>']
    for step in range(5):
        y = y0 + height - step / 4 * height
        out.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y}" y2="{y}" stroke="#ddd"/>'
                   f'<text x="{x0 - 5}" y="{y + 4}" text-anchor="end">{y_max * step / 4:g}</text>')
    for x in sorted({x for x, _ in points}):
        out.append(f'<text x="{x0 + x / x_max * width:.1f}" y="{y0 + height + 14}" '
                   f'text-anchor="middle">{x:g}</text>')
    for number_, (name, line) in enumerate(series.items()):
        colour, line = COLOURS[number_ % len(COLOURS)], [p for p in line if p[1] is not None]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                   + " ".join(at(*point) for point in line) + '"/>')
        out += [f'<circle r="2.5" fill="{colour}" cx="{x}" cy="{y}"/>'
                for x, y in (at(*point).split(",") for point in line)]
        if legend:
            y = y0 + 10 + 16 * number_
            out.append(f'<line x1="{x0 + width + 10}" x2="{x0 + width + 28}" y1="{y}" y2="{y}" '
                       f'stroke="{colour}" stroke-width="2"/><text x="{x0 + width + 33}" y="{y + 4}">'
                       f'{html.escape(name)}</text>')
    return out


def nice(value):
    """The next of 1, 2, 4, 8 times a power of ten, at or above the value."""
    if value <= 0:
        return 1
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 4, 8, 10) if step * power >= value)
