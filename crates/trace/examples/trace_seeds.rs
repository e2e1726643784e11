//! Writes small traces for the fuzz target `trace` to start from: `cargo run -p pleat-trace --example
//! trace_seeds -- DIR`.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = std::env::args().nth(1).ok_or("usage: trace_seeds DIR")?;
    let dir = Path::new(&dir).join("trace");
    std::fs::create_dir_all(&dir)?;
    let specs = [
        "thrasher:pages=20,passes=3",
        "scan:pages=30+zipf:pages=40,refs=60",
        "compile:jobs=2,units=2,heap=8,headers=8,text=8,work=2",
        "sort:pages=30,run=4",
    ];
    for (spec, number) in specs.iter().zip(0..) {
        let Ok(mut source) = pleat_trace::generator(spec) else {
            return Err(format!("{spec} is no workload").into());
        };
        let trace = pleat_trace::copy(source.as_mut(), Vec::new())?;
        std::fs::write(dir.join(format!("{number}.trace")), &trace)?;
        let mut lines = Vec::new();
        pleat_trace::text::dump(&mut pleat_trace::Reader::new(trace)?, &mut lines)?;
        std::fs::write(dir.join(format!("{number}.txt")), lines)?;
    }
    std::fs::write(
        dir.join("lackey"),
        "I  4000,3\n L 5000,8\n S 6000,4\n M 5008,8\n",
    )?;
    Ok(())
}
