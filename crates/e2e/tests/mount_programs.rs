//! Real programs on `pleat mount`, with files several times its memory: none may find wrong data, and
//! what they make is what they make elsewhere.

use std::fs;
use std::path::Path;

use pleat_e2e::{Machine, Megabytes, Outcome};

/// The smallest budget that every program here is tried with.
const MEMORY: Megabytes = Megabytes(16);

fn fsx(machine: &Machine, seed: u64, flags: &[&str]) -> Outcome {
    let mount = machine.mount(MEMORY);
    let job = machine
        .job(env!("CARGO_BIN_EXE_fsx"))
        .args([
            "--size",
            "32M",
            "--threads",
            "2",
            "--seed",
            &seed.to_string(),
        ])
        .args(flags)
        .arg(mount.path("exercised"))
        .timeout(180);
    let outcome = job.run();
    outcome.expect_orderly_end();
    mount.end();
    outcome
}

#[test]
fn fsx_finds_no_difference() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    for seed in 1..=2 {
        fsx(&machine, seed, &["--ops", "3000"]).expect_success();
    }
}

#[test]
#[ignore = "takes minutes"]
fn fsx_finds_no_difference_for_long() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    for seed in 10..30 {
        fsx(&machine, seed, &["--ops", "12000"]).expect_success();
    }
}

/// The proof that the tests above can fail.
#[test]
fn fsx_finds_a_flipped_byte() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    let outcome = fsx(&machine, 1, &["--ops", "300", "--flip-after", "200"]);
    outcome.expect_code(1);
    assert!(
        outcome.stderr.contains("MISMATCH"),
        "{}",
        outcome.describe()
    );
}

#[test]
fn fio_verifies_what_it_wrote_at_random() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    if !machine.installed(&["fio"]) {
        return;
    }
    let mount = machine.mount(MEMORY);
    for engine in ["psync", "mmap"] {
        let job = machine
            .job("fio")
            .args(["--name=verified", "--rw=randwrite", "--bs=4k"]);
        let job = job
            .args([
                "--size=40m",
                "--verify=md5",
                "--verify_fatal=1",
                "--do_verify=1",
            ])
            .args([
                "--fallocate=none",
                "--end_fsync=1",
                "--buffer_compress_percentage=60",
            ])
            .args(["--refill_buffers", &format!("--ioengine={engine}")])
            .arg(format!("--directory={}", mount.path("").display()));
        job.timeout(200).run().expect_success();
        fs::remove_file(mount.path("verified.0.0")).expect("fio leaves its file");
    }
    mount.end();
}

/// Forty C files that call each other, a header, a Makefile.
fn plant_project(dir: &Path) {
    const FILES: u32 = 40;
    let write = |name: &str, text: String| fs::write(dir.join(name), text).expect("writable");
    fs::create_dir_all(dir).expect("writable");
    let declarations = (0..FILES).map(|n| format!("unsigned step_{n}(unsigned);\n"));
    write("steps.h", declarations.collect());
    for n in 0..FILES {
        let cases = (0..60).map(|c| format!("    case {c}: x = x * {} + {n}; break;\n", 2 * c + 3));
        let cases: String = cases.collect();
        write(&format!("step_{n}.c"), format!(
            "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include \"steps.h\"\n\
             unsigned step_{n}(unsigned x) {{\n    switch (x % 61) {{\n{cases}    }}\n    return x;\n}}\n"
        ));
    }
    let calls: String = (0..FILES)
        .map(|n| format!("    x = step_{n}(x);\n"))
        .collect();
    write("main.c", format!(
        "#include <stdio.h>\n#include \"steps.h\"\nint main(void) {{\n    unsigned x = 1;\n{calls}    \
         printf(\"%u\\n\", x);\n    return 0;\n}}\n"
    ));
    write(
        "Makefile",
        "OBJECTS := $(patsubst %.c,%.o,$(sort $(wildcard *.c)))\n\
        program: $(OBJECTS)\n\tcc -o $@ $^\n%.o: %.c steps.h\n\tcc -O1 -c -o $@ $<\n"
            .into(),
    );
}

#[test]
fn a_c_project_builds_to_the_same_program() {
    let Some(machine) = Machine::ready_for_mounts() else {
        return;
    };
    if !machine.installed(&["cc", "make"]) {
        return;
    }
    let mount = machine.mount(MEMORY);
    let places = [machine.scratch().join("project"), mount.path("project")];
    let built = places.map(|dir| {
        plant_project(&dir);
        machine
            .job("make")
            .args(["-j2", "-C"])
            .arg(&dir)
            .run()
            .expect_success();
        let ran = machine.job(dir.join("program")).run();
        ran.expect_success();
        (
            ran.stdout_text(),
            fs::read(dir.join("program")).expect("it was built"),
        )
    });
    assert!(
        built[0] == built[1],
        "built on the mount it is another program"
    );
    let make_again = machine
        .job("make")
        .arg("-C")
        .arg(mount.path("project"))
        .run();
    assert!(
        make_again.stdout_text().contains("up to date"),
        "{}",
        make_again.stdout_text()
    );
    mount.end();
}
