//! `kill -9` of `pleat mount` in the middle of work, `umount -l`, and a new mount: what a program was told
//! is on disk is there.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use pleat_e2e::{eventually, Machine, Megabytes};

const MEMORY: Megabytes = Megabytes(16);
/// So many transactions are committed before the kill, more than fit into the memory, unless fsync is so
/// slow that it takes longer than `FILLING_MAX`; fewer than `COMMITTED_MIN` show nothing.
const COMMITTED: u64 = 1_500;
const COMMITTED_MIN: u64 = 40;
const FILLING_MAX: Duration = Duration::from_secs(30);

/// Transactions of twenty rows of 1 kB; each is reported by its number once it is committed.
fn transactions(journal: &str) -> String {
    let head = format!(
        ".bail on\nPRAGMA journal_mode={journal};\nPRAGMA synchronous=FULL;\n\
         CREATE TABLE rows(txn INTEGER, body TEXT);\n"
    );
    let row = |txn| format!("INSERT INTO rows VALUES({txn}, hex(randomblob(500)));\n");
    let one = |txn: u64| {
        format!(
            "BEGIN;\n{}COMMIT;\nSELECT 'committed {txn}.';\n",
            row(txn).repeat(20)
        )
    };
    head + &(1..20_000).map(one).collect::<String>()
}

fn last_committed(printed: &str) -> u64 {
    let numbers = printed
        .lines()
        .filter_map(|l| l.strip_prefix("committed ")?.strip_suffix('.'));
    numbers.filter_map(|n| n.parse().ok()).max().unwrap_or(0)
}

fn sqlite_keeps_what_it_committed(journal: &str) {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    if !machine.installed(&["sqlite3", "stdbuf"]) {
        return;
    }
    let script = machine.scratch().join("transactions.sql");
    fs::write(&script, transactions(journal)).expect("scratch is writable");
    let mount = machine.mount(MEMORY);
    let sqlite = |db: &Path| machine.job("stdbuf").args(["-oL", "sqlite3"]).arg(db);
    let writing = sqlite(&mount.path("db")).stdin(&script).spawn();
    eventually(FILLING_MAX, || {
        last_committed(&writing.stdout()) >= COMMITTED
    });
    mount.crash();
    // It gets errors from now on; whatever it still reports has to be kept too.
    let committed = last_committed(&writing.wait().stdout_text());
    assert!(committed >= COMMITTED_MIN, "only {committed} transactions");

    let mount = machine.mount(MEMORY);
    let query = "PRAGMA integrity_check; SELECT count(DISTINCT txn), count(*) FROM rows \
                 WHERE txn <= "
        .to_string()
        + &committed.to_string()
        + ";";
    let checked = sqlite(&mount.path("db")).arg(query).run();
    checked.expect_success();
    let expected = format!("ok\n{committed}|{}\n", committed * 20);
    assert_eq!(checked.stdout_text(), expected, "of {committed} committed");
    mount.end();
}

#[test]
fn sqlite_with_a_write_ahead_log_keeps_what_it_committed() {
    sqlite_keeps_what_it_committed("WAL");
}

#[test]
fn sqlite_with_a_rollback_journal_keeps_what_it_committed() {
    sqlite_keeps_what_it_committed("DELETE");
}

/// A record of 512 bytes that says its number.
fn record(number: u64) -> Vec<u8> {
    let line = format!("record {number};");
    line.bytes().cycle().take(512).collect()
}

/// Appends numbered records, each with an fsync, until the mount dies; how many fsync reported.
fn append_until_refused(path: &Path) -> u64 {
    let mut file = File::create(path).expect("writable");
    let end = Instant::now() + Duration::from_secs(60);
    for number in 0.. {
        let written = file
            .write_all(&record(number))
            .and_then(|()| file.sync_all());
        if written.is_err() {
            return number;
        }
        assert!(Instant::now() < end, "the mount outlives its process");
    }
    unreachable!("there are enough numbers")
}

#[test]
fn what_fsync_reported_survives_the_death_of_the_mount() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let mount = machine.mount(MEMORY);
    let (above, below) = (mount.path("records"), mount.below("records"));
    let reported = std::thread::scope(|scope| {
        let appending = scope.spawn(|| append_until_refused(&above));
        let length = || fs::metadata(&below).map_or(0, |m| m.len());
        eventually(FILLING_MAX, || length() >= 5_000 * 512);
        mount.crash();
        appending.join().expect("the appender does not panic")
    });
    assert!(reported >= 200, "only {reported} records in half a minute");
    let found = fs::read(&below).expect("it is there");
    for number in 0..reported {
        let at = number as usize * 512;
        let kept = found.get(at..at + 512) == Some(&record(number)[..]);
        assert!(kept, "record {number} of {reported} reported ones is lost");
    }
}

#[test]
fn a_dead_mount_refuses_instead_of_hanging_and_can_be_mounted_again() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let mount = machine.mount(MEMORY);
    fs::write(mount.path("file"), "content").expect("writable");
    let mut open = OpenOptions::new()
        .append(true)
        .open(mount.path("file"))
        .expect("writable");
    open.sync_all().expect("fsync");
    mount.crash();
    let refused = open.write_all(b"more").and_then(|()| open.sync_all());
    refused.expect_err("there is nobody to write it");
    let mount = machine.mount(MEMORY);
    assert_eq!(
        fs::read_to_string(mount.path("file")).expect("readable"),
        "content"
    );
    mount.end();
}
