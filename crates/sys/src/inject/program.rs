//! What is known of a program by its file.

use object::elf::FileHeader64;
use object::read::elf::{FileHeader, ProgramHeader};
use object::Endianness;
use std::fs::File;
use std::io::Read;

/// Headers and notes are in so many bytes at a file's beginning.
const HEAD: u64 = 64 << 10;

/// Whether a process executes a program of Go's: it has the note by which Go's linker marks its own. Such a program, where it
/// loads no library of C's, makes processes by vfork alone.
pub fn is_of_go(pid: i32) -> bool {
    let mut head = Vec::new();
    let file = File::open(format!("/proc/{pid}/exe"));
    let read = file.and_then(|file| file.take(HEAD).read_to_end(&mut head));
    read.is_ok() && has_go_note(&head).unwrap_or(false)
}

fn has_go_note(head: &[u8]) -> Option<bool> {
    let header = FileHeader64::<Endianness>::parse(head).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, head).ok()? {
        let Ok(Some(mut notes)) = segment.notes(endian, head) else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"Go" {
                return Some(true);
            }
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_is_none_of_go() {
        assert!(!is_of_go(std::process::id() as i32));
        assert_eq!(has_go_note(b"#!/bin/sh"), None);
    }
}
