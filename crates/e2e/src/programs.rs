//! The programs that tests run: those of tests/programs, built where needed, and those that
//! happen to be installed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::machine::{target_dir, workspace, Machine};
use pleat_testing::skip;

impl Machine {
    /// The torture program, compiled once per test binary; None after a SKIP line when there is
    /// no C compiler.
    pub fn torture(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let sources = c_files(&workspace().join("tests/programs/torture"));
        self.compiled(&BUILT, "torture", &sources)
    }

    /// The program that makes system calls on pages that are away, as [`Machine::torture`].
    pub fn calls(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "calls", &self.sources_of_calls())
    }

    /// The same linked statically, which loads no library.
    pub fn static_calls(&self) -> Option<PathBuf> {
        let output = target_dir().join("tmp").join("static_calls");
        let mut command = Command::new("cc");
        command
            .args(["-O2", "-pthread", "-static", "-o"])
            .arg(&output)
            .args(self.sources_of_calls());
        self.installed(&["cc"])
            .then(|| built_once("static_calls".into(), output, command))?
    }

    fn sources_of_calls(&self) -> Vec<PathBuf> {
        let mut sources = c_files(&workspace().join("tests/programs/calls"));
        let shared = ["torture/region.c", "torture/support.c"];
        sources.extend(shared.map(|source| self.program(source)));
        sources
    }

    /// The processes that share memory, as [`Machine::torture`].
    pub fn shared(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let mut sources = c_files(&workspace().join("tests/programs/shared"));
        let shared = ["torture/region.c", "torture/support.c"];
        sources.extend(shared.map(|source| self.program(source)));
        self.compiled(&BUILT, "shared", &sources)
    }

    /// Processes that share one large array by forks, as [`Machine::torture`].
    pub fn segment(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "segment", &[self.program("segment.c")])
    }

    /// The program that maps files, as [`Machine::torture`].
    pub fn mappings(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "mappings", &[self.program("mappings.c")])
    }

    /// The program that copies between heap and files, as [`Machine::torture`].
    pub fn copies(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "copies", &[self.program("copies.c")])
    }

    /// The program that maps files to read them, as [`Machine::torture`].
    pub fn readonly(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "readonly", &[self.program("readonly.c")])
    }

    /// The program whose heap grows by brk(), as [`Machine::torture`].
    pub fn grow(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "grow", &[self.program("grow.c")])
    }

    /// The program that holds memory until it is told to end, as [`Machine::torture`].
    pub fn hold(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "hold", &[self.program("hold.c")])
    }

    /// The program whose threads wait in every way while it checks its memory, as [`Machine::torture`].
    pub fn waiters(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "waiters", &[self.program("waiters.c")])
    }

    /// The small process beside a large one, as [`Machine::torture`].
    pub fn beside(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "beside", &[self.program("beside.c")])
    }

    /// The program whose forked child reads everything, as [`Machine::torture`].
    pub fn forkwalk(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "forkwalk", &[self.program("forkwalk.c")])
    }

    /// The server with forked workers, and its neighbour, as [`Machine::torture`].
    pub fn prefork(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "prefork", &[self.program("prefork.c")])
    }

    /// More processes than CPUs that thrash, as [`Machine::torture`].
    pub fn turns(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "turns", &[self.program("turns.c")])
    }

    /// The program with a userfaultfd of its own, as [`Machine::torture`].
    pub fn refused(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "refused", &[self.program("refused.c")])
    }

    /// The program that attacks pleat's socket, as [`Machine::torture`].
    pub fn hostile(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "hostile", &[self.program("hostile.c")])
    }

    /// The program that slows another's first thread down, as [`Machine::torture`].
    pub fn slow(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "slow", &[self.program("slow.c")])
    }

    /// The program that forbids itself things, as [`Machine::torture`].
    pub fn shut_in(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "shut_in", &[self.program("shut_in.c")])
    }

    /// A program of tests/programs, compiled once per test binary by this compiler with these options, which are what
    /// the test is about: `None` after a SKIP line where the compiler is missing, or lacks what they ask for.
    pub fn compiled_with(&self, compiler: &str, name: &str, options: &[&str]) -> Option<PathBuf> {
        if !self.installed(&[compiler]) {
            return None;
        }
        let key = format!("{compiler} {name} {}", options.join(" "));
        let output = target_dir().join("tmp").join(key.replace([' ', '/'], "_"));
        let mut command = Command::new(compiler);
        command
            .args(["-O2", "-pthread"])
            .args(options)
            .arg("-o")
            .arg(&output)
            .arg(self.program(&format!("{name}.c")));
        built_once(key, output, command)
    }

    /// A Go program of tests/programs, built once per test binary; `None` after a SKIP line where it does not build.
    pub fn go_program(&self, name: &str) -> Option<PathBuf> {
        let output = target_dir().join("tmp").join(format!("{name}.out"));
        let mut command = Command::new("go");
        command
            .args(["build", "-o"])
            .arg(&output)
            .arg(self.program(name))
            .env("GOFLAGS", "")
            .env("GOTOOLCHAIN", "local")
            .env("GOCACHE", target_dir().join("tmp").join("go"));
        built_once(name.to_owned(), output, command)
    }

    /// A Rust program of tests/programs, built once per test binary by rustc with these options, which are what the test is
    /// about; `None` after a SKIP line where it does not build, as where there is no such target.
    pub fn rust_program(&self, name: &str, options: &[&str]) -> Option<PathBuf> {
        if !self.installed(&["rustc"]) {
            return None;
        }
        let key = format!("rustc {name} {}", options.join(" "));
        let output = target_dir().join("tmp").join(key.replace([' ', '/'], "_"));
        let mut command = Command::new("rustc");
        command
            .args(["--edition", "2021", "-O"])
            .args(options)
            .arg("-o")
            .arg(&output)
            .arg(self.program(name));
        built_once(key, output, command)
    }

    /// The program that executes itself in every way, as [`Machine::torture`].
    pub fn environments(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "environments", &[self.program("environments.c")])
    }

    /// The program with a deep stack, as [`Machine::torture`].
    pub fn main_stack(&self) -> Option<PathBuf> {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        self.compiled(&BUILT, "main_stack", &[self.program("main_stack.c")])
    }

    fn compiled(
        &self,
        built: &OnceLock<PathBuf>,
        name: &str,
        sources: &[PathBuf],
    ) -> Option<PathBuf> {
        self.installed(&["cc"])
            .then(|| built.get_or_init(|| compile(name, sources)).clone())
    }

    /// Whether all these programs are in PATH; says SKIP when one is not.
    pub fn installed(&self, programs: &[&str]) -> bool {
        let missing: Vec<&str> = programs.iter().copied().filter(|p| !in_path(p)).collect();
        if !missing.is_empty() {
            skip(format!("not installed: {}", missing.join(", ")));
        }
        missing.is_empty()
    }

    /// A file of tests/programs.
    pub fn program(&self, name: &str) -> PathBuf {
        let path = workspace().join("tests/programs").join(name);
        assert!(path.exists(), "{} is missing", path.display());
        path
    }

    /// Runs one of the generators of tests/programs into a file of the scratch directory.
    pub fn generate(&self, generator: &str, size: u64, into: &str) -> PathBuf {
        let path = self.scratch().join(into);
        let made = self
            .job("python3")
            .arg(self.program(generator))
            .arg(size.to_string())
            .run();
        made.expect_success();
        fs::rename(&made.stdout, &path).expect("both are in the scratch directory");
        path
    }
}

fn in_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn compile(name: &str, sources: &[PathBuf]) -> PathBuf {
    let output = target_dir().join("tmp").join(name);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-pthread", "-o"])
        .arg(&output)
        .args(sources)
        .stdin(Stdio::null())
        .status()
        .expect("cc is installed");
    assert!(status.success(), "the program {name} does not compile");
    output
}

fn c_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).expect("the torture program has a directory");
    let paths = entries.map(|e| e.expect("readable directory").path());
    paths
        .filter(|p| p.extension().is_some_and(|e| e == "c"))
        .collect()
}

/// What a command makes, which is run once per test binary for each key; `None` after a SKIP line where it fails.
fn built_once(key: String, output: PathBuf, mut command: Command) -> Option<PathBuf> {
    static BUILT: Mutex<BTreeMap<String, Option<PathBuf>>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().expect("nobody panics with the list");
    let made = built.entry(key.clone()).or_insert_with(|| {
        let status = command.stdin(Stdio::null()).stderr(Stdio::null()).status();
        status
            .is_ok_and(|status| status.success())
            .then_some(output)
    });
    if made.is_none() {
        skip(format!("does not compile here: {key}"));
    }
    made.clone()
}
