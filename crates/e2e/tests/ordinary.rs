//! An ordinary user who may open /dev/userfaultfd and has no capability: the program is folded like
//! root's, and a fork that its child could not survive fails with a message.

use pleat_e2e::{Machine, Nobody};
use std::process::Output;

/// Runs a torture test as nobody; `None`, visibly, where that cannot be arranged.
fn as_nobody(test: &str) -> Option<Output> {
    let machine = Machine::ready()?;
    let nobody = Nobody::with(&machine, &[machine.torture()?])?;
    let job = ["--memory", "44M", "--", "./torture", test, "64"];
    Some(nobody.run(&job).output)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn an_ordinary_user_reads_what_was_written() {
    let Some(output) = as_nobody("read") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("ok read"), "{out}\n{err}");
}

#[test]
fn threads_of_an_ordinary_user_fault_at_once() {
    let Some(output) = as_nobody("threads") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
}

#[test]
fn a_fork_of_an_ordinary_user_fails_with_a_message_and_no_wrong_byte() {
    let Some(output) = as_nobody("fork") else {
        return;
    };
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(!output.status.success(), "{out}\n{err}");
    assert!(err.contains("fork refused"), "{out}\n{err}");
    assert!(!out.contains("differs"), "{out}\n{err}");
}
