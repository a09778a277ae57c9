//! The check of layouts against execution: every mutant of every right schedule.
//!
//! What the check accepts must be right when it runs. What it refuses is compiled without the check and run all the same,
//! and must be wrong: another loss, other gradients, replicas that differ, sizes that do not fit. Read [`try_all`] first.

use crate::harness::{BOUND, Case, Outcome, root, uncounted};
use crate::mutation::{Mutant, leads_to, mutants};
use slapo_core::compile::{Effects, compile, unchecked};

const ODD: &str = "tests/data/gpt2-odd.pt2";
const BERT: &str = "tests/data/bert-tiny.pt2";
const OPT: &str = "tests/data/opt-tiny.pt2";
const LLAMA: &str = "tests/data/llama-tiny.pt2";

/// What became of the mutants of one schedule.
#[derive(Debug, Default)]
struct Tally {
    accepted_and_right: usize,
    /// Refused, and other numbers came out.
    wrong: usize,
    /// Refused, and the run stopped: replicas differ, or sizes do not fit.
    stopped: usize,
    /// Refused, and no program could be made: sizes do not fit.
    no_program: usize,
    /// Refused, and right.
    harmless: Vec<String>,
    /// Refused with a message that does not lead to the mistake.
    elsewhere: Vec<String>,
}

impl Tally {
    fn executed(&self) -> usize {
        self.accepted_and_right + self.wrong + self.stopped + self.harmless.len()
    }
}

/// Runs all mutants of a right schedule, `least` of them or more to an end. Panics where the check accepts what is wrong,
/// refuses it elsewhere than at the mistake, or refuses what is right: but for pieces of the `equivalent` parameters, which
/// have no gradient.
fn try_all(name: &str, case: &Case, least: usize, equivalent: &[&str]) {
    let theirs = case.oracle();
    let ours = case.run(case.programs()).expect("the right schedule runs");
    assert!(ours.apart(&theirs) <= BOUND, "{name} is not right: {:e}", ours.apart(&theirs));
    let largest = |values: &[f64]| values.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let scale = theirs.gradients.values().map(|gradient| largest(gradient)).fold(0.0, f64::max);
    for parameter in equivalent {
        assert!(largest(&theirs.gradients[*parameter]) < 1e-12 * scale, "{parameter} has a gradient");
    }
    let mut tally = Tally::default();
    for mutant in mutants(&case.model, &case.effects) {
        try_one(name, case, &theirs, mutant, &mut tally);
    }
    println!("{name}: {} mutants executed: {tally:?}", tally.executed());
    let same = |what: &String| equivalent.iter().any(|parameter| what.contains(&format!("of {parameter}:")));
    assert!(tally.harmless.iter().all(same), "{name}: refused, but right: {:#?}", tally.harmless);
    assert!(tally.elsewhere.is_empty(), "{name}: refused elsewhere: {:#?}", tally.elsewhere);
    assert!(tally.executed() >= least, "{name}: {tally:?}");
}

fn try_one(name: &str, case: &Case, theirs: &Outcome, mutant: Mutant, tally: &mut Tally) {
    let Case { model, sizes, options, .. } = case;
    let what = format!("{name}, {}", mutant.what);
    let built = unchecked(model, sizes, &mutant.effects, options, mutant.without);
    let (faults, programs) = built.map_or_else(|faults| (faults.clone(), Err(faults)), |b| (b.faults, b.programs));
    // What the schedule does not say cannot be refused in it.
    if mutant.without.is_none() {
        let refusal = compile(model, sizes, &mutant.effects, options).err().unwrap_or_default();
        assert_eq!(refusal, faults, "{what}: the check depends on the bypass");
    }
    let accepted = faults.is_empty();
    if !accepted && !faults.iter().any(|f| leads_to(f, &mutant, model)) {
        tally.elsewhere.push(format!("{}: {faults:?}", mutant.what));
    }
    let ran = programs.map(|programs| case.run(programs).map(|ours| ours.apart(theirs)));
    match ran {
        Ok(Ok(apart)) if accepted && apart <= BOUND => tally.accepted_and_right += 1,
        wrong if accepted => panic!("{what} is accepted, but wrong: {wrong:?}"),
        Ok(Ok(apart)) if apart <= BOUND => tally.harmless.push(mutant.what),
        Ok(Ok(_)) => tally.wrong += 1,
        Ok(Err(_)) => tally.stopped += 1,
        Err(_) => tally.no_program += 1,
    }
}

/// The example as it is written, on a smaller model, with other sizes of its axes.
fn example(name: &str, axes: &[(&str, &str)]) -> Case {
    let path = root().join(format!("examples/gpt2/{name}.slapo"));
    let mut text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    text = text.replace("batch = 8, seq = 64", "batch = 4, seq = 6");
    axes.iter().for_each(|(from, to)| text = text.replace(from, to));
    Case::of(ODD, &text)
}

/// Uneven pieces of the tied head's table, and of the loss.
const TABLE: &str = "vocab(m.transformer.wte, over: tp)
m.lm_head.input().grad().sync(all_reduce, over: tp)
m.data_parallel(over: dp)";

const BERT_BODY: &str = "for l in m.bert.encoder.layer {
    column(l.attention.self.{query, key, value}, over: tp)
    row(l.attention.output.dense, over: tp)
    column(l.intermediate.dense, over: tp)
    row(l.output.dense, over: tp)
}";

/// Queries, keys and values share their input's gradient: one reduction for three.
const BERT_ONCE: &str = "for l in m.bert.encoder.layer {
    l.attention.self.{query, key, value}.{weight, bias}.shard(out, over: tp)
    l.attention.self.input().grad().sync(all_reduce, over: tp)
    row(l.attention.output.dense, over: tp)
}";

const OPT_BODY: &str = "for l in m.model.decoder.layers {
    column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
    row(l.self_attn.out_proj, over: tp)
    column(l.fc1, over: tp)
    row(l.fc2, over: tp)
}";

/// Whole weights, and a part of every sequence on every rank.
const OPT_TOKENS: &str = "for l in m.model.decoder.layers {
    l.fc1.input().sync(slice(seq), over: tp)
    l.fc1.input().grad().sync(all_gather(token), over: tp)
    l.fc2.output().sync(all_gather, over: tp)
    l.fc2.output().grad().sync(slice(seq), over: tp)
    l.{fc1, fc2}.{weight, bias}.grad().sync(all_reduce, over: tp)
}";

/// Two heads of keys and values for four of queries, and a gated feed-forward block.
const LLAMA_BODY: &str = "for l in m.model.layers {
    column(l.self_attn.{q_proj, k_proj, v_proj}, over: tp)
    row(l.self_attn.o_proj, over: tp)
    column(l.mlp.{gate_proj, up_proj}, over: tp)
    row(l.mlp.down_proj, over: tp)
}";

#[test]
fn gpt2_tensor_parallel() {
    try_all("GPT-2, tp 2", &example("tensor_parallel", &[]), 150, &[]);
    try_all("GPT-2, tp 4", &example("tensor_parallel", &[("tp = 2", "tp = 4")]), 150, &[]);
}

#[test]
fn gpt2_sequence_parallel() {
    try_all("GPT-2, sequences over tp 2", &example("sequence_parallel", &[]), 150, &[]);
}

#[test]
fn gpt2_context_parallel() {
    try_all("GPT-2, sequences and heads over cp 2", &example("context_parallel", &[]), 150, &[]);
}

#[test]
fn gpt2_data_parallel() {
    try_all("GPT-2, dp 2", &example("data_parallel", &[]), 130, &[]);
}

#[test]
fn gpt2_tensor_and_data_parallel() {
    try_all("GPT-2, dp 2 × tp 2", &example("tp_dp", &[]), 90, &[]);
    let table = Case::on(ODD, "dp = 2, tp = 2", TABLE);
    try_all("GPT-2, vocabulary over tp 2 of dp 2", &table, 35, &[]);
}

/// What is added to all keys alike shifts all scores of a query alike, which the softmax does not see: whichever pieces of
/// it the ranks take, nothing changes, and its gradient is zero.
const BERT_EQUIVALENT: [&str; 2] =
    ["bert.encoder.layer.0.attention.self.key.bias", "bert.encoder.layer.1.attention.self.key.bias"];
const OPT_EQUIVALENT: [&str; 2] =
    ["model.decoder.layers.0.self_attn.k_proj.bias", "model.decoder.layers.1.self_attn.k_proj.bias"];

#[test]
fn bert() {
    let body = format!("{BERT_BODY}\nm.data_parallel(over: dp)");
    try_all("BERT, dp 2 × tp 2", &Case::on(BERT, "dp = 2, tp = 2", &body), 140, &BERT_EQUIVALENT);
    try_all("BERT, tp 2, one reduction", &Case::on(BERT, "tp = 2", BERT_ONCE), 200, &BERT_EQUIVALENT);
}

#[test]
fn opt() {
    let body = format!("{OPT_BODY}\nm.data_parallel(over: dp)");
    try_all("OPT, dp 2 × tp 2", &Case::on(OPT, "dp = 2, tp = 2", &body), 130, &OPT_EQUIVALENT);
    try_all("OPT, tokens over tp 2", &Case::on(OPT, "tp = 2", OPT_TOKENS), 130, &[]);
}

#[test]
fn llama() {
    let body = format!("{LLAMA_BODY}\nm.data_parallel(over: dp)");
    try_all("Llama, dp 2 × tp 2", &Case::on(LLAMA, "dp = 2, tp = 2", &body), 100, &[]);
}

/// The count of tokens that matter is not the schedule's to forget; a program without its reduction is noticed all the same.
#[test]
fn a_count_of_a_rank_alone_is_wrong() {
    for case in [example("data_parallel", &[]), example("tp_dp", &[])] {
        let theirs = case.oracle();
        let ours = case.run(case.programs().into_iter().map(uncounted).collect());
        assert!(ours.is_err() || ours.is_ok_and(|ours| ours.apart(&theirs) > 1e-3));
    }
}

/// The harness itself: without a mutation there is nothing wrong, whichever way it is compiled.
#[test]
fn the_bypass_changes_nothing_of_what_is_right() {
    let case = example("tp_dp", &[]);
    let Case { model, sizes, effects, options, .. } = &case;
    let built = unchecked(model, sizes, effects, options, None).unwrap_or_else(|e| panic!("{e:#?}"));
    assert!(built.faults.is_empty());
    assert_eq!(built.programs.as_deref().ok(), Some(&case.programs()[..]));
    let nothing = Effects { axes: effects.axes.clone(), ..Effects::default() };
    let idle = Case {
        effects: nothing,
        model: model.clone(),
        archive: case.archive.clone(),
        sizes: *sizes,
        options: options.clone(),
    };
    assert!(idle.run(idle.programs()).is_ok_and(|ours| ours.apart(&case.oracle()) <= BOUND));
}
