use super::*;

const BUDGET_PAGES: u64 = 100_000;
const CPUS: usize = 2;

/// A job whose processes do what is said of them.
struct Job {
    control: LoadControl,
    start: Instant,
    now: Instant,
    /// Pages of all.
    known_pages: u64,
    /// By process: CPUs wanted while it does not rest, and of these, waits for pages.
    wants: Vec<(f32, f32)>,
    turns: u64,
}

impl Job {
    /// Processes that all compute and wait for pages a quarter of the time.
    fn thrashing(processes: usize) -> Job {
        let start = Instant::now();
        Job {
            control: LoadControl::new(CPUS, BUDGET_PAGES, start),
            start,
            now: start,
            known_pages: BUDGET_PAGES * 2,
            wants: vec![(0.95, 0.25); processes],
            turns: 0,
        }
    }

    fn look(&mut self) {
        self.now += LOOK_EVERY;
        let seen: Vec<Seen> = (0..)
            .zip(&self.wants)
            .map(|(id, &(cpus, stalled))| {
                let rests = self.control.rests(SpaceId(id));
                let (cpus, stalled) = if rests { (0.0, 0.0) } else { (cpus, stalled) };
                Seen {
                    id: SpaceId(id),
                    cpus,
                    busiest: cpus,
                    stalled,
                    pages: 1000 - u64::from(id),
                }
            })
            .collect();
        self.turns += self.control.look(self.now, &seen, self.known_pages);
    }

    fn looks_for(&mut self, seconds: u32) {
        (0..seconds * 10).for_each(|_| self.look());
    }

    /// Who rests.
    fn resting(&self) -> Vec<u32> {
        let ids = 0..self.wants.len() as u32;
        ids.filter(|&id| self.control.rests(SpaceId(id))).collect()
    }

    fn seconds(&self) -> f32 {
        (self.now - self.start).as_secs_f32()
    }
}

#[test]
fn as_many_run_as_there_are_cpus_first_those_with_most_in_memory() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    assert_eq!(job.resting(), [2, 3]);
    assert_eq!(job.turns, 2);
}

#[test]
fn nobody_rests_without_need() {
    let mut all_fit = Job::thrashing(4);
    all_fit.known_pages = BUDGET_PAGES;
    let few_wait = Job {
        wants: vec![(0.95, 0.02); 4],
        ..Job::thrashing(4)
    };
    let as_many_as_cpus = Job::thrashing(CPUS);
    let sleeping = Job {
        wants: vec![(0.7, 0.25); 4],
        ..Job::thrashing(4)
    };
    for mut job in [all_fit, few_wait, as_many_as_cpus, sleeping] {
        job.looks_for(20);
        assert_eq!(job.resting(), [0; 0]);
    }
}

#[test]
fn turns_end_and_nobody_rests_for_longer_than_is_said() {
    for processes in [3, 4, 7] {
        let mut job = Job::thrashing(processes);
        let mut rested = vec![0u32; processes];
        let mut ran = vec![0u32; processes];
        for _ in 0..6000 {
            job.look();
            for id in 0..processes {
                let rests = job.control.rests(SpaceId(id as u32));
                rested[id] = if rests { rested[id] + 1 } else { 0 };
                ran[id] += u32::from(!rests);
                let most = REST_MAX + REST_MAX / 2;
                assert!(LOOK_EVERY * rested[id] < most, "at {} s", job.seconds());
            }
        }
        let (least, most) = (ran.iter().min().unwrap(), ran.iter().max().unwrap());
        assert!(most - least < 600, "{ran:?}");
    }
}

/// Two that nearly fill the CPUs: when the turn of one ends the other leaves a little idle, both run, and turns begin anew.
#[test]
fn whose_turn_it_is_does_not_begin_anew_with_who_has_had_one() {
    for wants in [[1.8, 1.73], [1.73, 1.8], [1.73, 1.73], [1.8, 1.8]] {
        let mut job = Job::thrashing(2);
        job.control.budget_pages = 11_000;
        job.wants = wants.map(|cpus| (cpus, 1.1)).to_vec();
        let mut ran = [0u32; 2];
        for _ in 0..1200 {
            job.look();
            let rests = |id| job.control.rests(SpaceId(id));
            (0..2).for_each(|id| ran[id as usize] += u32::from(!rests(id)));
        }
        let (least, most) = (ran.iter().min().unwrap(), ran.iter().max().unwrap());
        assert!(most - least < 120, "{wants:?}: {ran:?}");
    }
}

#[test]
fn with_little_memory_turns_are_short() {
    let mut job = Job::thrashing(4);
    job.control.budget_pages = 5000;
    job.looks_for(3);
    let first = job.resting();
    job.looks_for(3);
    assert_ne!(job.resting(), first);
}

#[test]
fn no_cpu_is_idle_because_somebody_rests() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    job.wants[0] = (0.02, 0.0);
    (0..5).for_each(|_| job.look());
    assert_eq!(job.resting(), [3]);
    job.wants[1] = (0.0, 0.0);
    (0..5).for_each(|_| job.look());
    assert_eq!(job.resting(), [0; 0]);
}

#[test]
fn all_who_run_sleep_at_once() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    (job.wants[0], job.wants[1]) = ((0.0, 0.0), (0.0, 0.0));
    (0..5).for_each(|_| job.look());
    assert_eq!(job.resting(), [0; 0]);
}

#[test]
fn who_has_ended_makes_room_at_once() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    job.control
        .keep(job.now, &[SpaceId(1), SpaceId(2), SpaceId(3)]);
    assert_eq!(job.resting(), [3]);
    job.control.keep(job.now, &[]);
    assert_eq!(job.resting(), [0; 0]);
}

#[test]
fn who_comes_later_stands_behind_once_it_is_seen_to_compute() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    job.wants.push((0.95, 0.25));
    (0..8).for_each(|_| job.look());
    assert_eq!(job.resting(), [2, 3]);
    job.looks_for(1);
    assert_eq!(job.resting(), [2, 3, 4]);
}

#[test]
fn who_sleeps_now_and_then_never_rests() {
    let mut job = Job::thrashing(5);
    for look in 0..600 {
        job.wants[4] = if look % 3 == 0 {
            (0.2, 0.0)
        } else {
            (0.9, 0.3)
        };
        job.look();
        assert!(!job.control.rests(SpaceId(4)), "at {} s", job.seconds());
    }
    assert!(!job.resting().is_empty());
}

#[test]
fn after_a_signal_nobody_rests_for_a_while() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    job.control.pause(job.now);
    let until = job.now + PAUSE;
    while job.now + LOOK_EVERY < until {
        assert_eq!(job.resting(), [0; 0]);
        job.look();
    }
    job.looks_for(2);
    assert_eq!(job.resting().len(), 2);
}

#[test]
fn once_all_fits_nobody_rests_any_more() {
    let mut job = Job::thrashing(4);
    job.looks_for(3);
    job.known_pages = BUDGET_PAGES / 2;
    job.look();
    assert_eq!(job.resting(), [0; 0]);
}
