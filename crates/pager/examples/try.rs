//! A bare `pleat run` for trying the pager: `try MIB SWAPDIR|- PROGRAM ARGS...`
fn main() {
    let mut args = std::env::args_os().skip(1);
    let mib: u64 = args.next().unwrap().to_str().unwrap().parse().unwrap();
    let swap = args.next().unwrap();
    let preset = pleat_engine::preset("pleat").unwrap();
    let agent = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .parent()
        .unwrap()
        .join("libpleat_agent.so");
    let job = pleat_pager::Job {
        program: args.collect(),
        budget_bytes: mib << 20,
        swap: (swap != "-").then(|| pleat_pager::Swap {
            dir: swap.into(),
            max_bytes: None,
        }),
        codec: preset.codec.into(),
        layout: preset.layout.into(),
        sizing: preset.sizing.into(),
        run_max: preset.run_max,
        agent,
        live: None,
        quiet: false,
    };
    match pleat_pager::run(&job) {
        Ok(outcome) => eprintln!("{:?}\n{:#?}", outcome.ending, outcome.report),
        Err(error) => eprintln!("pleat: {error}"),
    }
}
