//! What counts as the job's memory: its own, once, and nothing of others.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, signal, Machine, Megabytes, Outcome};

/// Pages that a job may lose though it fits: while its processes start, much is expected of them.
const TAKEN_MOST: u64 = 2 * (1 << 20) / 4096;

/// Another job's process, ended with the test.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Eight workers that share 40 MB, beside a program that fills and frees 400 MB: what they need fits into the
/// budget, so next to nothing leaves it.
fn expect_to_fit(shared: &str, budget: u64) {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let Some(prefork) = machine.prefork() else {
        return;
    };
    let mut neighbour = Command::new(&prefork);
    neighbour.args(["neighbour", "30"]).stdin(Stdio::null());
    let _neighbour = Neighbour(neighbour.spawn().expect("it was just compiled"));
    let job = machine.job(&prefork).args([shared, "4"]);
    let outcome = job.budget(Megabytes(budget)).timeout(40).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text().trim(), "done");
    let taken = taken_pages(&outcome);
    assert!(taken <= TAKEN_MOST, "{taken} taken\n{}", outcome.describe());
}

fn taken_pages(outcome: &Outcome) -> u64 {
    let engine = &outcome.stats()["report"]["engine"];
    engine["taken_pages"].as_u64().unwrap_or(u64::MAX)
}

/// 800 MB of pages were taken while the growth of the whole machine counted as the job's.
#[test]
fn a_server_with_forked_workers_is_not_slowed_by_another_jobs_growth() {
    expect_to_fit("fork", 90);
}

/// Eight times 40 MB were counted, and the job never ended.
#[test]
fn memory_that_several_processes_map_counts_once() {
    expect_to_fit("map", 110);
}

/// Shared memory cannot be folded. It filled the budget, and the threads that worked on the rest stood still for ever,
/// without a word.
#[test]
fn a_job_goes_on_where_shared_memory_is_larger_than_the_budget() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "import mmap, threading\n\
        shared = mmap.mmap(-1, 66 << 20)\n\
        for at in range(0, 66 << 20, 4096): shared[at] = 1\n\
        heap = [bytearray(1 << 16) for _ in range(256)]\n\
        for _ in range(3):\n    for one in heap: one[0] += 1; one[-1] += 1\n\
        print(sum(one[0] + one[-1] for one in heap))\n";
    let job = machine.job("python3").args(["-c", text]);
    let outcome = job.budget(Megabytes(64)).timeout(60).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text().trim(), "1536");
}

/// Whoever waits is told why within ten seconds of the trouble's begin, and no wait for memory keeps a job from ending.
#[test]
fn a_job_that_gets_on_slowly_is_told_why_and_ends_when_told_to() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "import mmap\n\
        heap = [bytearray(1 << 16) for _ in range(512)]\n\
        shared = mmap.mmap(-1, 60 << 20)\n\
        print('full', flush=True)\n\
        for at in range(0, 60 << 20, 4096): shared[at] = 1\n\
        while True:\n    for one in heap: one[0] += 1; one[0] -= 1; one[-1] += 1; one[-1] -= 1\n";
    for end in [signal::SIGTERM, signal::SIGINT] {
        let job = machine.job("python3").args(["-c", text]);
        let running = job.budget(Megabytes(64)).timeout(60).spawn();
        running.wait_for_output("full");
        let told = eventually(Duration::from_secs(12), || {
            running.stderr().contains("cannot be folded")
        });
        assert!(told, "nothing was said in 12 s: {}", running.stderr());
        let sent = Instant::now();
        running.signal(end);
        let outcome = running.wait();
        let took = sent.elapsed();
        assert!(
            took < Duration::from_secs(5),
            "{took:?} {}",
            outcome.describe()
        );
        assert!(outcome.stderr.contains("raise --memory"));
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
        let hint = "or give --shared-memory";
        assert_eq!(outcome.stderr.contains(hint), is_root);
    }
}

/// What a program does when it is told to end may take for ever where it has next to no memory (a JVM with ZGC did not end in
/// half a minute): it is killed then, and one that has memory is not.
#[test]
fn a_job_that_is_told_to_end_and_has_no_memory_to_do_so_is_ended() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "import mmap, os, signal, sys, time\n\
        signal.signal(signal.SIGTERM, lambda *_: None)\n\
        heap = [bytearray(1 << 16) for _ in range(512)]\n\
        shared = mmap.mmap(-1, 60 << 20)\n\
        print('full', flush=True)\n\
        for at in range(0, int(sys.argv[1]) << 20, 4096): shared[at] = 1\n\
        end = time.time() + 50\n\
        while time.time() < end:\n    for one in heap: one[0] += 1; one[0] -= 1; one[-1] += 1; one[-1] -= 1\n";
    let job = |shared: &str| {
        let job = machine.job("python3").args(["-c", text, shared]);
        let running = job.budget(Megabytes(64)).timeout(100).spawn();
        running.wait_for_output("full");
        running
    };
    let (full, free) = (job("60"), job("1"));
    free.signal(signal::SIGTERM);
    let told = eventually(Duration::from_secs(30), || {
        full.stderr().contains("cannot be folded")
    });
    assert!(told, "nothing was said: {}", full.stderr());
    full.signal(signal::SIGTERM);
    let outcome = full.wait();
    outcome.expect_code(125);
    let told = "was told to end 30 s ago";
    assert!(outcome.stderr.contains(told), "{}", outcome.describe());
    free.wait().expect_success();
}

/// A program that pleat cannot manage (an empty name of the socket keeps it out) outgrows the container.
#[test]
fn what_the_kernel_killed_for_want_of_memory_is_said() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    let text = "x=$(head -c 90000000 /dev/zero | tr '\\0' a); echo ${#x}";
    let job = machine
        .job("env")
        .args(["-i", "PLEAT_SOCKET=", "sh", "-c", text]);
    let outcome = job.budget(Megabytes(64)).hard_limit().timeout(60).run();
    let said = "the kernel killed the program for want of memory";
    for part in [said, "limit is 65 MiB", "lower --memory"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.describe());
    }
}

/// What is kept for the page cache was added again at every look between two samples: a job of 44 MB was taken for one of
/// gigabytes, all it had was taken away, and the kernel killed it.
#[test]
fn a_job_that_reads_files_again_and_shares_memory_is_not_taken_for_larger_from_look_to_look() {
    let Some(machine) = Machine::ready() else {
        return;
    };
    if !machine.installed(&["python3"]) {
        return;
    }
    let text = "import mmap, os, random, time\n\
        shared = mmap.mmap(-1, 12 << 20)\n\
        for page in range(0, 12 << 20, 4096): shared[page] = 1\n\
        heap = bytearray(os.urandom(1 << 20) * 16)\n\
        at = os.environ['READ']\n\
        with open(at, 'wb') as file:\n    for _ in range(120): file.write(heap[:1 << 20])\n\
        end = time.monotonic() + 6\n\
        def read(seed):\n    dice = random.Random(seed)\n    file = os.open(at, os.O_RDONLY)\n    \
            while time.monotonic() < end:\n        os.pread(file, 1 << 16, dice.randrange(120 << 20) & ~4095)\n        \
                for _ in range(16): shared[dice.randrange(12 << 20)] = heap[dice.randrange(16 << 20)]\n\
        for seed in range(6):\n    if os.fork() == 0:\n        read(seed)\n        os._exit(0)\n\
        ended = [os.wait()[1] for _ in range(6)]\n\
        print(ended)\n";
    let read = machine.scratch().join("read");
    let job = machine.job("python3").args(["-c", text]).env("READ", read);
    let outcome = job.budget(Megabytes(100)).hard_limit().timeout(60).run();
    outcome.expect_success();
    assert_eq!(outcome.stdout_text().trim(), "[0, 0, 0, 0, 0, 0]");
    let taken = taken_pages(&outcome);
    assert!(taken <= TAKEN_MOST, "{taken} taken\n{}", outcome.describe());
}
