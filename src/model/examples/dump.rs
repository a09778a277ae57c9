fn main() {
    let file = std::env::args().nth(1).unwrap();
    let bytes = std::fs::read(&file).unwrap();
    let t = std::time::Instant::now();
    match slapo_model::import(&bytes) {
        Err(e) => {
            for e in e {
                println!("error: {e}\n  {:?}\n  help: {:?}", e, e.advice())
            }
        }
        Ok(m) => {
            eprintln!("{:?} nodes {}", t.elapsed(), m.graph.nodes.len());
            for fault in slapo_model::validate(&m, &m.graph) {
                println!("FAULT {fault}");
            }
            let t = std::time::Instant::now();
            let i = slapo_model::inspect::inspect(&m);
            eprintln!("inspect {:?}", t.elapsed());
            println!("{}", slapo_model::inspect::render(&i));
            for p in std::env::args().skip(2) {
                println!("{:?}", slapo_model::inspect::render_ports(&i, &p));
            }
        }
    }
}
