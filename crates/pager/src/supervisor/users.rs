//! Agents follow their programs when these give up a user for good.
//!
//! An agent's credentials are its own: a program that gives up root changes those of the threads that the C library
//! knows. The kernel tells nobody, so this is seen at a look, a quarter of a second later at most, and the agent is
//! told to do the same. Only what cannot be taken back is followed: a program that may become any user again is left
//! alone, and its agent has no more than it has.

use super::Supervisor;
use crate::census::{Process, Stage};
use crate::ports::AgentSocket;
use crate::shared::lock;
use pleat_sys::channel::Channel;
use pleat_sys::procfs::{self, Credentials};
use pleat_sys::Plain;
use pleat_wire::message::{Shed, SHED, SHED_GROUPS_MAX, SHED_KEEPS_GROUPS};
use std::sync::Arc;

/// What is known of a process's users.
#[derive(Default)]
pub struct Users {
    /// It cannot change them any more, and its agent has the same.
    is_settled: bool,
    /// What its agent was told last.
    told: Option<Shed>,
}

impl Supervisor<'_> {
    /// Has agents give up what their programs have given up.
    pub(super) fn follow_users(&mut self) {
        let own = procfs::credentials(std::process::id() as i32);
        let own_filters = own.map_or(0, |own| own.filters);
        for (pid, process) in &mut self.census.processes {
            let mut kept = self.kept.iter().filter(|(kept, _)| kept == pid);
            let kept = kept.next().map(|(_, channel)| channel);
            if !process.users.is_settled && has_agent(process, kept) {
                follow(*pid, process, kept, own_filters);
            }
        }
    }
}

fn has_agent(process: &Process, kept: Option<&Channel>) -> bool {
    kept.is_some() || !matches!(process.stage, Stage::Unmanageable | Stage::Silent)
}

fn follow(pid: i32, process: &mut Process, kept: Option<&Channel>, own_filters: u32) {
    let Ok(program) = procfs::credentials(pid) else {
        return;
    };
    if program.may_be_anybody() {
        return;
    }
    // In a PID namespace of its own its name is another.
    let thread = procfs::thread_called(pid, process.agent.0);
    let is_known = thread.is_some();
    let agent = thread.and_then(|thread| procfs::credentials(thread).ok());
    let Some(shed) = to_shed(&program, agent.as_ref()) else {
        process.users.is_settled = is_one(&program.users) && is_one(&program.groups);
        return;
    };
    // A filter that binds the agent, too, may end whoever tries; and numbers of another namespace mean other users.
    let is_bound = agent.is_some_and(|agent| agent.filters > own_filters);
    if is_bound || !procfs::is_in_our_user_namespace(pid) {
        process.users.is_settled = true;
        return;
    }
    if process.users.told == Some(shed) {
        return;
    }
    if tell_agent(process, kept, &shed) {
        process.users.told = Some(shed);
        process.users.is_settled = !is_known;
    }
}

/// What an agent is to become; `None` when it has no more than its program.
fn to_shed(program: &Credentials, agent: Option<&Credentials>) -> Option<Shed> {
    if agent.is_some_and(|agent| has_no_more(agent, program)) {
        return None;
    }
    let keeps = agent.is_some_and(|agent| agent.more == program.more);
    let count = match program.more.len() {
        _ if keeps => SHED_KEEPS_GROUPS,
        count if count <= SHED_GROUPS_MAX => count as u32,
        // It needs none of them.
        _ => 0,
    };
    let mut shed = Shed {
        kind: SHED,
        more_count: count,
        users: program.users,
        groups: program.groups,
        ..Shed::default()
    };
    if count as usize == program.more.len() {
        shed.more[..program.more.len()].copy_from_slice(&program.more);
    }
    Some(shed)
}

/// Whether real, effective and saved are the same.
fn is_one(ids: &[u32; 3]) -> bool {
    ids.iter().all(|id| *id == ids[0])
}

/// Whether an agent is nobody whom its program could not be, and has no capability put aside.
fn has_no_more(agent: &Credentials, program: &Credentials) -> bool {
    let is_within =
        |agent: &[u32; 3], program: &[u32; 3]| agent.iter().all(|id| program.contains(id));
    agent.permitted == 0
        && is_within(&agent.users, &program.users)
        && is_within(&agent.groups, &program.groups)
}

/// Tells an agent, if it is connected and listens.
pub(super) fn tell_agent<T: Plain>(process: &Process, kept: Option<&Channel>, message: &T) -> bool {
    let send = |channel: &dyn AgentSocket| channel.send(pleat_sys::bytes_of(message), None).is_ok();
    match &process.stage {
        Stage::Ready(channel) | Stage::Preparing(channel, _) => send(channel),
        Stage::Managed(link) => {
            let channel: Option<Arc<dyn AgentSocket>> = lock(&link.take)
                .agent
                .as_ref()
                .map(|agent| agent.channel.clone());
            channel.is_some_and(|channel| send(&*channel))
        }
        Stage::Unmanageable | Stage::Silent => kept.is_some_and(|kept| send(kept)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32, permitted: u64) -> Credentials {
        Credentials {
            users: [id; 3],
            groups: [id; 3],
            more: vec![id],
            permitted,
            filters: 0,
        }
    }

    #[test]
    fn an_agent_has_no_user_that_its_program_has_not() {
        let (root, nobody) = (user(0, 1 << 7), user(65534, 0));
        let shed = to_shed(&nobody, Some(&root)).unwrap();
        assert_eq!(
            (shed.users, shed.more_count, shed.more[0]),
            ([65534; 3], 1, 65534)
        );
        assert_eq!(to_shed(&nobody, None).unwrap().users, [65534; 3]);
        assert_eq!(to_shed(&nobody, Some(&nobody)), None);
        // Root without capabilities: its agent keeps none either.
        assert!(to_shed(&user(0, 0), Some(&root)).is_some());
    }

    #[test]
    fn a_user_that_the_program_can_go_back_to_is_kept() {
        let between = Credentials {
            users: [1000, 65534, 1000],
            ..user(65534, 0)
        };
        let agent = Credentials {
            users: [1000; 3],
            ..user(65534, 0)
        };
        assert_eq!(to_shed(&between, Some(&agent)), None);
    }

    #[test]
    fn groups_that_are_too_many_are_given_up() {
        let many = Credentials {
            more: (0..100).collect(),
            ..user(1, 0)
        };
        assert_eq!(to_shed(&many, Some(&user(0, 0))).unwrap().more_count, 0);
        let same = Credentials {
            more: many.more.clone(),
            ..user(0, 0)
        };
        assert_eq!(
            to_shed(&many, Some(&same)).unwrap().more_count,
            SHED_KEEPS_GROUPS
        );
    }
}
