//! Links the library without the C library's start files and libraries: they would bring calls that the program can
//! replace (see `src/symbols.rs`), and the library needs nothing of them.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-link-arg-cdylib=-nostdlib");
}
