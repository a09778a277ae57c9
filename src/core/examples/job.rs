//! dev only
use slapo_core::compile::*;
use slapo_core::passes::canonical;
use slapo_core::lower::*;
use slapo_model::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let bytes = std::fs::read(&a[1]).unwrap();
    let model = import(&bytes).unwrap();
    let get = |k: &str| a.iter().find_map(|x| x.strip_prefix(&format!("{k}=")).map(str::to_owned));
    let num = |k: &str, d: i64| get(k).map_or(d, |v| v.parse().unwrap());
    let mut effects = Effects { micro_batches: num("micro", 1) as u32, ..Effects::default() };
    if let Some(c) = get("ckpt") { for m in c.split(',') { effects.checkpoints.push((model.find(m).unwrap(), 0)); } }
    let mut options = Options::default();
    options.model = canonical::Options { no_dropout: get("nodrop").is_some(), dtype: get("dtype").and_then(|d| slapo_program::DType::parse(&d)) };
    if get("sgd").is_some() { options.optimizer.kind = OptimizerKind::Sgd; options.optimizer.weight_decay = 0.0; }
    options.optimizer.lr = get("lr").map_or(1e-3, |v| v.parse().unwrap());
    options.optimizer.clip = get("clip").map(|v| v.parse().unwrap());
    let sizes = InputSizes { batch: num("batch", 4), seq: Some(num("seq", 16)) };
    let t = std::time::Instant::now();
    let c = compile(&model, &sizes, &effects, &options).unwrap();
    eprintln!("compile {:?}", t.elapsed());
    if get("show").is_some() { println!("{}", c.program); eprintln!("{:?}", slapo_core::memory::predict(&c.program)); return; }
    let job = slapo_program::Job { program: c.program, archive: Some(std::fs::canonicalize(&a[1]).unwrap()), data: get("data").unwrap().into(), steps: num("steps", 10) as u64, init: false, threads: Some(num("threads",2) as u32), deterministic: false, dump_gradients: get("dump").map(Into::into), save: get("save").map(Into::into) };
    println!("{}", serde_json::to_string(&job).unwrap());
}
