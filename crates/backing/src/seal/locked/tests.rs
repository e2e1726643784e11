use super::*;
use ring::aead::{LessSafeKey, UnboundKey, AES_256_GCM};
use ring::rand::{SecureRandom, SystemRandom};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

/// Odd, so that words times it are as different as the words: the test knows the key, but has no copy.
const VEIL: u64 = 0x9E37_79B9_7F4A_7C15;

fn address<T>(locked: &Locked<T>) -> u64 {
    locked.page.as_ptr() as u64
}

/// Exit status of a forked child that runs `work`, which must not allocate.
fn in_child(work: impl FnOnce() -> libc::c_int) -> libc::c_int {
    // SAFETY: the child only runs `work`, which makes system calls and reads memory, and leaves
    // without running anything else of this process.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork: {}", io::Error::last_os_error());
    if child == 0 {
        let answer = work();
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(answer) };
    }
    let mut status = 0;
    // SAFETY: our own child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "the child died: status {status}");
    libc::WEXITSTATUS(status)
}

#[test]
fn the_page_is_locked_not_dumped_and_wiped_on_fork() {
    let locked = Locked::new(|_| Ok(7u64)).unwrap();
    let begin = format!("{:x}-", address(&locked));
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let ours = maps.lines().skip_while(|line| !line.starts_with(&begin));
    let Some(flags) = ours.clone().find(|line| line.starts_with("VmFlags:")) else {
        return pleat_testing::skip("this kernel does not tell the flags of mappings");
    };
    for flag in ["lo", "dd", "wf"] {
        assert!(
            flags.split(' ').any(|found| found == flag),
            "{flag} in {flags}"
        );
    }
    let resident = ours.clone().find(|line| line.starts_with("Locked:"));
    assert!(!resident.unwrap().contains(" 0 kB"), "{resident:?}");
}

#[test]
fn a_forked_child_sees_zeros_and_its_parent_the_value() {
    let locked = Locked::new(|secret| {
        *secret = [0xA5; SECRET_BYTES];
        Ok([0x5Au8; 500])
    })
    .unwrap();
    let answer = in_child(|| {
        let start: *const u8 = locked.page.as_ptr().cast();
        // SAFETY: inside the page; a child may look at what is there.
        let any = (0..size_of::<Page<[u8; 500]>>()).any(|at| unsafe { *start.add(at) } != 0);
        libc::c_int::from(any) + 2 * libc::c_int::from(locked.get().is_some())
    });
    assert_eq!(answer, 0, "1: not all zero, 2: the value is given out");
    assert_eq!(locked.get(), Some(&[0x5A; 500]));
    // SAFETY: ours, and `new` is done with it.
    assert_eq!(unsafe { (*locked.page.as_ptr()).secret }, [0; SECRET_BYTES]);
}

#[test]
fn without_the_right_to_lock_there_is_no_value() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let answer = in_child(|| {
        // SAFETY: a limit of the child's own, then a user of its own in case this is root. The raw
        // call, because the C library's would look for threads that a child does not have.
        let ready = unsafe {
            libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) == 0
                && (libc::geteuid() != 0
                    || libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) == 0)
        };
        match Locked::new(|_| Ok(7u64)) {
            _ if !ready => 3,
            Err(SealError::Lock(_)) => 0,
            Err(_) => 1,
            Ok(_) => 2,
        }
    });
    match answer {
        3 => pleat_testing::skip("a child may not give up its rights here"),
        _ => assert_eq!(answer, 0, "1: another error, 2: locked all the same"),
    }
}

#[test]
fn the_key_is_nowhere_else_in_memory() {
    let mut veiled = [0; 2];
    let locked = Locked::new(|secret| {
        SystemRandom::new()
            .fill(secret)
            .map_err(|_| SealError::Random)?;
        for (word, bytes) in veiled.iter_mut().zip(secret.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap()).wrapping_mul(VEIL);
        }
        Ok(LessSafeKey::new(
            UnboundKey::new(&AES_256_GCM, secret).unwrap(),
        ))
    })
    .unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut found = 0;
    for line in maps.lines() {
        let (range, rest) = line.split_once(' ').unwrap();
        let (begin, end) = range.split_once('-').unwrap();
        let begin = u64::from_str_radix(begin, 16).unwrap();
        let end = u64::from_str_radix(end, 16).unwrap();
        if rest.starts_with("rw") && !(begin..end).contains(&address(&locked)) {
            let copies = copies(veiled, begin, end);
            assert_eq!(copies, 0, "the key is in {line}");
            found += 1;
        }
    }
    assert!(found > 2, "heap and stacks were searched");
    let home = address(&locked);
    assert_eq!(
        copies(veiled, home, home + 4096),
        1,
        "the search finds the key where it is"
    );
}

/// How often the key is in a range of this process's memory.
fn copies(veiled: [u64; 2], begin: u64, end: u64) -> usize {
    const CHUNK_BYTES: usize = 64 * 1024;
    let memory = File::open("/proc/self/mem").unwrap();
    let mut bytes = vec![0; CHUNK_BYTES];
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap()).wrapping_mul(VEIL);
    let mut copies = 0;
    // Steps shorter than the buffer, for copies across the border of two.
    for offset in (begin..end).step_by(CHUNK_BYTES - 16) {
        let len = CHUNK_BYTES.min((end - offset) as usize);
        // Memory that another test has just given back cannot be read.
        let read = memory.read_at(&mut bytes[..len], offset).unwrap_or(0);
        copies += bytes[..read]
            .windows(16)
            .filter(|at| word(&at[..8]) == veiled[0] && word(&at[8..]) == veiled[1])
            .count();
        bytes.fill(0);
    }
    copies
}
