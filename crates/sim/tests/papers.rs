//! What the papers state holds in simulation, each to its stated tolerance.

use pleat_sim::papers::{figures, Figure};

fn failing(figure: &Figure) -> Vec<String> {
    let findings = (figure.make)();
    assert!(!findings.lines.is_empty() && !findings.claims.is_empty());
    let failing = findings.claims.into_iter().filter(|claim| !claim.holds);
    let line = |claim: pleat_sim::papers::Claim| {
        let (stated, tolerance, measured) = (claim.stated, claim.tolerance, claim.measured);
        format!(
            "{}: {stated}; wanted: {tolerance}; measured: {measured}",
            figure.name
        )
    };
    failing.map(line).collect()
}

/// A few at a time, as there are processors.
#[test]
fn every_statement_of_the_papers_holds() {
    let figures = figures();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some(figure) =
            figures.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            failed.extend(failing(figure));
        }
        failed
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let failed: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let results = workers
            .into_iter()
            .flat_map(|worker| worker.join().expect("no panic"));
        results.collect()
    });
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn every_figure_has_a_name_of_its_own() {
    let mut names: Vec<_> = figures().iter().map(|figure| figure.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}
