"""The suites: of each its parts, the command that runs a part, and how the outcomes of its tests are read from what it left.

A suite whose tests take hours is here with a part of them; what is left out is said in its first lines.
"""
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml
from pathlib import Path

DEBIAN_POSTGRES = Path("/usr/lib/postgresql/15/bin")


def by_status(status):
    return "passed" if status == 0 else "failed"


def told(said, pattern, kinds, status):
    """Outcomes from lines that PATTERN finds in what was SAID: `kind` by KINDS, `name` the test's. Of two of one name the worse counts."""
    found = {}
    for line in re.finditer(pattern, said, re.M):
        kind = kinds[line["kind"]]
        found[line["name"]] = max(found.get(line["name"], ""), kind, key=["", "skipped", "passed", "failed"].index)
    return {**found, "all": by_status(status)}


class Suite:
    """Whoever is asked for a suite gets one of these, with the directory of sources."""

    owner = None
    parts = []

    def __init__(self, sources):
        self.root = sources / self.name

    def at(self, work):
        return work

    def built(self, *files):
        there = all((self.root / file).exists() for file in files)
        return None if there else f"{self.name} (suites/fetch {self.root.parent} {self.name})"


class CPython(Suite):
    """CPython's regression tests of the python3 in PATH (Debian: libpython3-testsuite). Left out: what neither memory, processes nor files have
    a part in."""

    name = "cpython"
    parts = """test_dict test_list test_bytes test_mmap test_gc test_fork1 test_os test_posix test_resource test_signal test_io
        test_threading test_subprocess test_socket test_asyncio test_ctypes test_faulthandler test_multiprocessing_fork
        test_multiprocessing_spawn test_multiprocessing_main_handling test_concurrent_futures test_pickle test_zlib test_sqlite3 test_json
        test_array test_memoryview test_weakref test_set test_deque test_heapq test_sort test_fileio test_largefile test_tempfile test_shutil
        test_select test_selectors test_pty test_openpty test_wait3 test_wait4 test_eintr test_tracemalloc test_capi test_embed""".split()

    def missing(self):
        has = subprocess.run([sys.executable, "-c", "import test.libregrtest, test.test_dict"], stderr=subprocess.DEVNULL)
        return None if has.returncode == 0 else "CPython's tests (apt-get install libpython3-testsuite)"

    def command(self, part, work):
        # What is ignored waits for ever on some kernels, without pleat.
        return [sys.executable, "-m", "test", "--junit-xml", str(work / "junit.xml"), "--timeout", "600", "-i", "*UDPLITE*", "-i", "*VSOCK*", part]

    def outcomes(self, _part, work, _status, _said):
        found = {}
        try:
            tree = xml.parse(work / "junit.xml")
        except (OSError, xml.ParseError):
            return {"all": "did not end"}
        for case in tree.iter("testcase"):
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"error", "failure"} else "skipped" if "skipped" in kinds else "passed"
            # Of subtests the worst counts.
            name = case.get("name")
            found[name] = max(found.get(name, ""), outcome, key=["", "skipped", "passed", "failed"].index)
        return found


class StressNg(Suite):
    """stress-ng's stressors of memory, processes, threads and signals. Left out: those of the CPU, the network, file systems and devices."""

    name = "stress-ng"
    SECONDS = 5
    # On memory that is checked where the stressor can.
    OPTIONS = {
        "vm": "--vm-bytes 96M --verify", "mmap": "--mmap-bytes 96M --verify", "mremap": "--mremap-bytes 32M --verify",
        "fork": "", "vfork": "", "clone": "", "mmapfork": "--verify", "madvise": "", "userfaultfd": "--userfaultfd-bytes 16M",
        "brk": "--verify", "stack": "--stack-fill", "bigheap": "--bigheap-growth 256K --bigheap-bytes 96M --verify",
        "malloc": "--malloc-bytes 64M --verify", "mincore": "", "mlock": "--verify", "mlockmany": "", "mprotect": "",
        "munmap": "", "remap": "--verify", "msync": "--msync-bytes 16M --verify", "memfd": "--memfd-bytes 32M --verify",
        "shm": "--verify", "vm-rw": "--vm-rw-bytes 32M --verify", "vm-splice": "", "vm-addr": "--verify", "pageswap": "--verify",
        "memthrash": "", "switch": "", "mutex": "", "futex": "", "signest": "", "sigsegv": "", "context": "", "exec": "",
        "mmapaddr": "--verify", "mmapfixed": "--verify", "mmapmany": "", "mmaphuge": "", "memcpy": "--verify", "memrate": "--memrate-bytes 32M",
        "pkey": "", "daemon": "", "forkheavy": "", "zombie": "", "kill": "", "sigfd": "", "sigpending": "", "sigq": "",
        "sigrt": "", "sigsuspend": "", "sigio": "", "pthread": "", "sem": "", "sem-sysv": "", "shm-sysv": "", "msg": "", "mq": "", "pipe": "",
        "poll": "", "epoll": "", "splice": "", "tee": "", "vecmath": "", "bsearch": "", "qsort": "", "tree": "", "skiplist": "", "hsearch": "",
        "bad-altstack": "", "stackmmap": "", "nanosleep": "", "wait": "", "spawn": "", "sysbadaddr": "", "ptrace": "",
        "seccomp": "", "rmap": "", "membarrier": "", "rseq": "", "judy": "", "matrix-3d": "", "lockbus": "", "mcontend": "",
    }
    parts = list(OPTIONS)

    def missing(self):
        return None if shutil.which("stress-ng") else "stress-ng (apt-get install stress-ng)"

    def command(self, part, work):
        options = self.OPTIONS[part].split()
        return ["stress-ng", "--temp-path", str(work), f"--{part}", "2", *options, "--timeout", f"{self.SECONDS}s"]

    def outcomes(self, part, _work, status, said):
        if re.search(r"skipp|not (implemented|supported)|unrecognized", said):
            return {part: "skipped"}
        return {part: by_status(status)}


class Redis(Suite):
    """Redis's unit tests of data, scripts and memory, and its tests of files. Left out: replication, clusters, sentinel, modules, TLS."""

    name = "redis"
    parts = [f"unit/type/{one}" for one in "string incr list list-2 list-3 set zset hash stream stream-cgroups".split()] + [
        f"unit/{one}" for one in "keyspace scan sort expire dump multi scripting functions bitops bitfield geo hyperloglog pubsub slowlog "
        "maxmemory lazyfree memefficiency aofrw other querybuf limits protocol tracking client-eviction obuf-limits shutdown".split()] + [
        f"integration/{one}" for one in "rdb aof aof-race aof-multi-part dismiss-mem corrupt-dump convert-ziplist-hash-on-load logging".split()]

    def missing(self):
        return self.built("src/redis-server", "tests/test_helper.tcl")

    def at(self, _work):
        return self.root

    def command(self, part, work):
        return ["tclsh", "tests/test_helper.tcl", "--single", part, "--clients", "1", "--timeout", "600"]

    def outcomes(self, _part, _work, status, said):
        plain = re.sub(r"\x1b\[[\d;]*m", "", said)
        kinds = {"ok": "passed", "err": "failed", "exception": "failed", "skip": "skipped", "ignore": "skipped"}
        pattern = r"^\[(?P<kind>ok|err|exception|skip|ignore)\]: (?P<name>.*?)(?: \(\d+ ms\)| in tests/\S+|$)"
        return told(plain, pattern, kinds, status)


class PostgreSQL(Suite):
    """PostgreSQL's regression tests, on a server that they start, as nobody if this is root. Left out: isolation, TAP, contrib and languages."""

    name = "postgresql"
    parts = ["parallel_schedule"]
    owner = "nobody" if os.geteuid() == 0 else None

    def missing(self):
        if not (DEBIAN_POSTGRES / "initdb").exists():
            return "PostgreSQL 15 (apt-get install postgresql)"
        return self.built("src/test/regress/pg_regress", "src/test/regress/regress.so")

    def command(self, part, work):
        tests = self.root / "src/test/regress"
        # Less shared memory than by default: it cannot be folded, and is not what is tested.
        (work / "settings").write_text("shared_buffers = 16MB\nfsync = off\nmax_wal_size = 256MB\n")
        (work / "settings").chmod(0o644)
        give_up = ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"] if self.owner else []
        return [*give_up, str(tests / "pg_regress"), f"--temp-instance={work}/instance", f"--temp-config={work}/settings",
                f"--bindir={DEBIAN_POSTGRES}", f"--dlpath={tests}", f"--inputdir={tests}", f"--outputdir={work}", "--no-locale",
                "--max-concurrent-tests=20", f"--schedule={tests / part}"]

    def outcomes(self, _part, _work, status, said):
        kinds = {"ok": "passed", "FAILED": "failed", "failed (ignored)": "skipped"}
        return told(said, r"^(?:test|    )\s*(?P<name>\w+)\s+\.\.\. (?P<kind>ok|FAILED|failed \(ignored\))", kinds, status)


class SQLite(Suite):
    """SQLite's tests in Tcl: its pages, sorter, journals, crashes, memory and full text search. Left out: the rest of `veryquick`, the soak tests."""

    name = "sqlite"
    parts = """select1 insert index trans trans2 wal wal2 walcrash mmap1 mmap2 pager1 memdb memsubsys1 memsubsys2 malloc5 malloc mallocA
        softheap1 shared thread001 thread002 vacuum vacuum2 sort sort2 bigsort bigrow blob backup backup2 crash crash2 crash8 corrupt corrupt2
        incrblob incrvacuum attach savepoint cache zeroblob fts3rnd fts4merge fts3corrupt lock multiplex tkt1567 journal1 where
        window1 with1 json101""".split()

    def missing(self):
        return self.built("testfixture")

    def command(self, part, work):
        return [str(self.root / "testfixture"), str(self.root / "test" / f"{part}.test"), "--verbose=1"]

    def outcomes(self, _part, _work, status, said):
        kinds = {"... Ok": "passed", "! ": "failed", "... Omitted": "skipped"}
        found = told(said, r"^(?P<name>[\w.()-]+)(?P<kind>\.\.\. (?:Ok|Omitted))", kinds, status)
        return {**found, **{test[1]: "failed" for test in re.finditer(r"^! (\S+) (?:expected|got)", said, re.M)}}


class Memcached(Suite):
    """memcached's tests in Perl, and its test program. Left out: TLS and SASL, which are not built in by default."""

    name = "memcached"

    @property
    def parts(self):
        tests = sorted((self.root / "t").glob("*.t"))
        return [test.stem for test in tests if not test.stem.startswith("ssl_")] + ["testapp"]

    def missing(self):
        return self.built("memcached", "testapp")

    def at(self, _work):
        return self.root

    def command(self, part, work):
        return ["./testapp"] if part == "testapp" else ["perl", f"t/{part}.t"]

    def outcomes(self, _part, _work, status, said):
        found = told(said, r"^(?P<kind>ok|not ok) (?P<name>\d+)", {"ok": "passed", "not ok": "failed"}, status)
        return {"all": "skipped"} if re.search(r"^1\.\.0 # ?skip", said, re.M | re.I) else found


class Lmdb(Suite):
    """LMDB's test programs. Left out: mtest6, which needs a library of the author's."""

    name = "lmdb"
    parts = ["mtest", "mtest2", "mtest3", "mtest4", "mtest5"]

    def missing(self):
        return self.built(*(f"libraries/liblmdb/{part}" for part in self.parts))

    def command(self, part, work):
        (work / "testdb").mkdir()
        return [str(self.root / "libraries/liblmdb" / part)]

    def outcomes(self, part, _work, status, _said):
        return {part: by_status(status)}


class Jemalloc(Suite):
    """jemalloc's unit and integration tests, each with the settings that it comes with. Left out: stress and analysis, which only measure."""

    name = "jemalloc"

    @property
    def parts(self):
        return [f"{kind}/{test.stem}" for kind in ("unit", "integration") for test in sorted((self.root / "test" / kind).glob("*.c"))
                if os.access(test.with_suffix(""), os.X_OK)]

    def missing(self):
        return self.built("test/test.sh", "test/unit/SFMT", "test/integration/aligned_alloc")

    def at(self, _work):
        return self.root

    def command(self, part, work):
        return ["env", f"LD_LIBRARY_PATH={self.root}/lib", "sh", "test/test.sh", f"test/{part}"]

    def outcomes(self, _part, _work, status, said):
        kinds = {"pass": "passed", "fail": "failed", "skip": "skipped"}
        return told(said, r"^(?P<name>test_\w+(?: \([\w-]+\))?): (?P<kind>pass|fail|skip)", kinds, status)


class Mimalloc(Suite):
    """mimalloc's tests of its interface and its stress test, linked, and the latter once more with the library in front of the C library's."""

    name = "mimalloc"
    parts = ["test-api", "test-api-fill", "test-stress", "test-stress-dynamic"]

    def missing(self):
        return self.built("build/mimalloc-test-stress")

    def command(self, part, work):
        build = self.root / "build"
        if part == "test-stress-dynamic":
            return ["env", f"LD_PRELOAD={build}/libmimalloc.so", str(build / "mimalloc-test-stress"), "8", "25", "10"]
        return [str(build / f"mimalloc-{part}"), *(["8", "25", "10"] if part == "test-stress" else [])]

    def outcomes(self, part, _work, status, said):
        return told(said, r"^test: (?P<name>[^.]+)\.\.\.\s+(?P<kind>ok|failed)", {"ok": "passed", "failed": "failed"}, status)


SUITES = {suite.name: suite for suite in (CPython, StressNg, Redis, PostgreSQL, SQLite, Memcached, Lmdb, Jemalloc, Mimalloc)}
