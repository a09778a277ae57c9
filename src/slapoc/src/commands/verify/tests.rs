//! Wrong programs are found out, and so is where they part: programs of a right schedule with one instruction changed, on
//! every rank alike, past all that the compiler checks.

use super::parting::{How, Parting};
use super::*;
use crate::args::{Args, Command};
use clap::Parser;
use slapo_program::{Arg, Collective, FunctionKind, GlobalId, Instr, LocalId, Op, Part, Role, Slot, Split, Value};
use std::collections::BTreeSet;
use std::path::Path;

const SCHEDULE: &str = "use std.parallel.{column, row}
mesh { dp = 2, tp = 2 }
input { batch = 4, seq = 7 }
schedule main(m: GPT2LMHeadModel) {
    for b in m.transformer.h {
        column(b.attn.c_attn, over: tp, groups: 3)
        row(b.attn.c_proj, over: tp)
        column(b.mlp.c_fc, over: tp)
        row(b.mlp.c_proj, over: tp)
    }
    m.data_parallel(over: dp)
}
";

/// A schedule's programs, ready to run.
struct Case {
    args: Box<Verify>,
    ready: Box<Ready>,
    compiled: Box<Compiled>,
    pair: Pair,
}

impl Case {
    fn new(schedule: &str, model: &str) -> Case {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("main.slapo");
        std::fs::write(&path, schedule).expect("writes");
        let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(model);
        let words = ["slapoc", "verify", "--clip", "0.01", "--steps", "1", "--model"].map(str::to_owned);
        let files = [model, path].map(|path| path.display().to_string());
        let Args { command: Command::Verify(args), global } = Args::parse_from(words.into_iter().chain(files)) else {
            panic!("no verify")
        };
        let options = |loaded: &Loaded| options_in(&args, loaded, DType::F64);
        let Ok(Prepared::Compiled(ready, compiled)) = prepare(&args.source, None, options, &Output::new(&global))
        else {
            panic!("the schedule is right")
        };
        let effects = &ready.loaded.checked.effects;
        let pair = Pair::new(&ready, effects, &compiled, &options(&ready.loaded)).expect("compiles");
        Case { args, ready, compiled, pair }
    }

    fn bench(&self) -> Bench<'_> {
        Bench::new(&self.args, &self.ready, &self.pair.theirs, &self.compiled.joint.graph).expect("a worker")
    }
}

/// Verifies the schedule with every rank's program changed.
fn verify(change: impl Fn(&mut Program)) -> Report {
    verify_of(SCHEDULE, change)
}

fn verify_of(schedule: &str, change: impl Fn(&mut Program)) -> Report {
    let mut case = Case::new(schedule, "examples/gpt2/gpt2-tiny.pt2");
    case.pair.ours.iter_mut().for_each(change);
    let Case { args, ready, compiled, pair } = &case;
    compare_runs(args, ready, compiled, pair, &case.bench()).unwrap_or_else(|failure| panic!("{failure:?}"))
}

/// Layouts, micro-batches, recomputation: where nothing is wrong, every value that is found in both programs is the same.
#[test]
fn right_programs_do_not_part() {
    let gpt2 = SCHEDULE.replace("m.data", "m.accumulate(steps: 2)\n m.transformer.h.*.checkpoint()\n m.data");
    let bert = "use std.parallel.{column, row}
        mesh { pod = 2, dp = 1, tp = 2 }
        input { batch = 8, seq = 7 }
        schedule main(m: Module) {
            for l in m.bert.encoder.layer {
                column(l.attention.self.{query, key, value}, over: tp)
                row(l.attention.output.dense, over: tp)
            }
            m.data_parallel(over: pod)
            m.data_parallel(over: dp)
            m.accumulate(steps: 2)
        }";
    let opt = "use std.parallel.{column, row}
        mesh { tp = 4 }
        input { batch = 3, seq = 9 }
        schedule main(m: Module) {
            for l in m.model.decoder.layers {
                column(l.fc1, over: tp)
                row(l.fc2, over: tp)
            }
        }";
    let zero = |stage: u8| SCHEDULE.replace("m.data", &format!("m.zero(stage: {stage}, over: dp)\n m.data"));
    let zeros = [1, 2, 3].map(zero);
    let gpt2_model = "examples/gpt2/gpt2-tiny.pt2";
    let models =
        [gpt2_model, "tests/data/bert-tiny.pt2", "tests/data/opt-tiny.pt2", gpt2_model, gpt2_model, gpt2_model];
    let schedules = [gpt2.as_str(), bert, opt].into_iter().chain(zeros.iter().map(String::as_str));
    for (schedule, model) in schedules.zip(models) {
        let case = Case::new(schedule, model);
        let (model, effects) = (&case.ready.archive.model, &case.ready.loaded.checked.effects);
        let values = traced(model, &case.compiled, effects, &case.pair.ours[0], &case.pair.theirs);
        let gradients = values.iter().filter(|value| value.is_gradient).count();
        assert_eq!(gradients, case.compiled.joint.gradients.len());
        // Every module that computes something is looked into.
        let modules: BTreeSet<&str> = values.iter().map(|value| value.module.as_str()).collect();
        assert!(values.len() - gradients > 40 && modules.len() > 12, "{} values of {modules:?}", values.len());
        let found = parting::first(&case.bench(), &values, &case.pair.ours, &case.pair.theirs).expect("runs");
        assert_eq!(found, None, "{}", case.ready.archive.name);
    }
}

/// A value that each micro-batch computes wrongly is found through the micro-batches.
#[test]
fn micro_batches_are_looked_through() {
    let schedule = SCHEDULE.replace("m.data", "m.accumulate(steps: 2)\n m.data");
    let mut case = Case::new(&schedule, "examples/gpt2/gpt2-tiny.pt2");
    let forgotten =
        |p: &mut Program| drop_collective(find(p, FunctionKind::Forward, "transformer.h.2.mlp", all_reduces));
    case.pair.ours.iter_mut().for_each(forgotten);
    let effects = &case.ready.loaded.checked.effects;
    let values = traced(&case.ready.archive.model, &case.compiled, effects, &case.pair.ours[0], &case.pair.theirs);
    let found = parting::first(&case.bench(), &values, &case.pair.ours, &case.pair.theirs).expect("runs");
    assert_eq!(found.map(|parting| parting.module).as_deref(), Some("transformer.h.2.mlp"));
}

/// The instruction of a module's function that does this.
fn find<'p>(
    program: &'p mut Program,
    kind: FunctionKind,
    module: &str,
    wanted: impl Fn(&Instr) -> bool,
) -> &'p mut Instr {
    let origins = program.origins.clone();
    let function = program.functions.iter_mut().find(|f| f.kind == kind).expect("a function of the kind");
    let is_there = |instr: &&mut Instr| origins[instr.origin as usize].module == module && wanted(instr);
    function.body.iter_mut().find(is_there).expect("an instruction of the module")
}

fn all_reduces(instr: &Instr) -> bool {
    matches!(instr.op, Op::Collective { kind: Collective::AllReduce, .. })
}

fn drop_collective(instr: &mut Instr) {
    instr.op = Op::Aten("aten::clone".to_owned());
}

fn gradient(program: &Program, name: &str) -> GlobalId {
    let is_it = |g: &slapo_program::Global| g.role == Role::Gradient && g.name == name;
    program.globals.iter().position(is_it).expect("a gradient of that name") as GlobalId
}

fn accumulate_into(program: &mut Program, global: GlobalId) -> &mut Instr {
    let into = [Some(Value::Global(global))];
    let mut all = program.functions.iter_mut().flat_map(|f| &mut f.body);
    all.find(|instr| instr.op == Op::Accumulate && instr.outs == into).expect("is accumulated")
}

fn verdict_of(report: &Report, what: &str) -> Option<Verdict> {
    report.rows.iter().find(|row| row.what == what).map(|row| row.verdict)
}

#[test]
fn a_right_program_is_right_and_communicates_as_foretold() {
    let report = verify(|_| {});
    assert_eq!((report.verdict, &report.parting), (Verdict::Rounding, &None));
    assert_eq!(report.collectives, report.predicted_collectives);
    assert!(report.collectives.iter().any(|c| c.function == "optimizer" && c.axis == "tp" && c.calls == 1));
}

#[test]
fn a_forgotten_sum_of_forward_is_found_where_it_should_have_been() {
    let report = verify(|p| drop_collective(find(p, FunctionKind::Forward, "transformer.h.1.attn", all_reduces)));
    assert_eq!(report.verdict, Verdict::Wrong);
    let text = show::text(&report);
    let end = "wrong: the schedule does not compute what the model computes\n\
        first apart in forward of transformer.h.1.attn: `view_22` (clone) differs between the ranks of `tp`\n";
    assert!(text.ends_with(end), "{text}");
    let Some(Parting { phase: "forward", module, value, how, .. }) = report.parting else {
        panic!("{:?}", report.parting)
    };
    assert_eq!(how, How::BetweenRanks { axis: Some("tp".to_owned()) });
    assert_eq!((module.as_str(), value.as_str()), ("transformer.h.1.attn", "view_22"));
}

#[test]
fn a_forgotten_sum_of_backward_is_found_behind_the_layer() {
    let report = verify(|p| drop_collective(find(p, FunctionKind::Backward, "transformer.h.1.mlp", all_reduces)));
    assert_eq!(report.verdict, Verdict::Wrong);
    let text = show::text(&report);
    let end = "first apart in backward of transformer.h.1.ln_2: the gradient of `transformer.h.1.ln_2.weight` \
        differs between the ranks of `tp`\n";
    assert!(text.ends_with(end), "{text}");
    let Some(Parting { phase: "backward", module, how, .. }) = report.parting else { panic!("{:?}", report.parting) };
    assert_eq!(how, How::BetweenRanks { axis: Some("tp".to_owned()) });
    // The input of the first layer of the MLP comes from the norm before it.
    assert_eq!(module, "transformer.h.1.ln_2");
}

#[test]
fn a_wrong_number_is_found_by_its_operator() {
    let scales = |instr: &Instr| instr.op == Op::Aten("aten::pow.Tensor_Scalar".to_owned());
    let report = verify(|p| {
        let power = find(p, FunctionKind::Forward, "transformer.h.2.mlp.act", scales);
        power.named.iter_mut().filter(|(name, _)| name == "exponent").for_each(|(_, arg)| *arg = Arg::Float(2.0));
    });
    let Some(Parting { phase: "forward", module, operator, how: How::Value { distance }, .. }) = report.parting else {
        panic!("{:?}", report.parting)
    };
    assert_eq!((module.as_str(), operator.as_str()), ("transformer.h.2.mlp.act", "pow.Tensor_Scalar"));
    assert!(distance > 1e-3, "{distance}");
}

/// ZeRO without one of its collectives: a gradient that is the rank's own part of the sum, pieces that nobody else gets.
#[test]
fn shared_updates_without_a_collective_are_wrong() {
    let zero = |stage: u8| SCHEDULE.replace("m.data", &format!("m.zero(stage: {stage}, over: dp)\n m.data"));
    let own_pieces = |program: &mut Program, kind: FunctionKind| {
        let rank = program.coordinates[0];
        let function = program.functions.iter_mut().find(|f| f.kind == kind).expect("is there");
        let kind = |instr: &Instr| match instr.op {
            Op::Collective { kind: Collective::ReduceScatter { dim, groups }, .. } => Some((dim, groups)),
            _ => None,
        };
        let at = function.body.iter().position(|instr| kind(instr).is_some()).expect("a reduce-scatter");
        let Instr { args, outs, free, origin, .. } = function.body.remove(at);
        let cut = args.into_iter().zip(outs).map(|(whole, out)| {
            let op = Op::Part(Split::even(0, 1, 2, Part::Rank(rank)));
            Instr { op, args: vec![whole], named: Vec::new(), outs: vec![out], free: Vec::new(), origin }
        });
        let mut cut: Vec<Instr> = cut.collect();
        cut.last_mut().expect("a tensor").free = free;
        function.body.splice(at..at, cut);
    };
    for (stage, kind) in [(1, FunctionKind::Reduction), (2, FunctionKind::Backward), (3, FunctionKind::Backward)] {
        let report = verify_of(&zero(stage), |program| own_pieces(program, kind));
        assert_eq!(verdict_of(&report, "gradients"), Some(Verdict::Wrong), "stage {stage}");
        let parting = report.parting.expect("gradients differ");
        assert_eq!(parting.phase, "backward", "stage {stage}");
    }
    let kept = |program: &mut Program| {
        let optimizer = program.functions.iter_mut().find(|f| f.kind == FunctionKind::Optimizer).expect("optimizer");
        let gathers = |instr: &Instr| matches!(instr.op, Op::Collective { kind: Collective::AllGather { .. }, .. });
        let first = optimizer.body.iter().position(gathers).expect("an all-gather");
        let Instr { free, .. } = optimizer.body.remove(first);
        optimizer.body.last_mut().expect("more").free.extend(free);
    };
    let text = show::text(&verify_of(&zero(1), kept));
    assert!(text.contains("transformer.wte.weight") && text.contains("differs between ranks"), "{text}");
}

/// torchtitan #596: the norm to clip by was that of the rank's own part.
#[test]
fn b31_a_clip_norm_of_the_local_part_is_wrong() {
    let report = verify(|p| drop_collective(find(p, FunctionKind::Optimizer, "", all_reduces)));
    assert_eq!(report.verdict, Verdict::Wrong);
    assert_eq!(report.parting, None, "forward and gradients are right");
}

/// NeMo-RL #3788, Megatron #5916: gradients that every rank holds whole were counted once per rank.
#[test]
fn b32_replicated_gradients_that_count_twice_are_wrong() {
    let report = verify(|program| {
        let norm = Value::Local(norm_of(program, "transformer.ln_f.weight"));
        let twice = Value::Local(program.locals.len() as LocalId);
        program.locals.push(Slot { alias: None, ..program.locals[0].clone() });
        program.locals.last_mut().expect("was pushed").ty = program.ty(norm).clone();
        let tp = program.mesh.iter().position(|axis| axis.name == "tp").expect("an axis") as u32;
        let optimizer = program.functions.iter_mut().find(|f| f.kind == FunctionKind::Optimizer).expect("optimizer");
        let stack =
            optimizer.body.iter().position(|i| i.free.iter().any(|l| Value::Local(*l) == norm)).expect("is used");
        let user = &mut optimizer.body[stack];
        for arg in &mut user.args {
            if let Arg::Values(values) = arg {
                values.iter_mut().filter(|v| **v == Some(norm)).for_each(|v| *v = Some(twice));
            }
        }
        user.free.retain(|l| Value::Local(*l) != norm);
        user.free.extend(as_local(twice));
        let op = Op::Collective { axis: tp, kind: Collective::AllReduce };
        let args = vec![Arg::Value(norm)];
        let free = as_local(norm).into_iter().collect();
        let instr = Instr { op, args, named: Vec::new(), outs: vec![Some(twice)], free, origin: 0 };
        optimizer.body.insert(stack, instr);
    });
    assert_eq!(verdict_of(&report, "gradient norm"), Some(Verdict::Wrong));
    assert_eq!(verdict_of(&report, "gradients"), Some(Verdict::Rounding));
}

fn norm_of(program: &Program, parameter: &str) -> LocalId {
    let gradient = Value::Global(gradient(program, parameter));
    let norms = program.functions.iter().filter(|f| f.kind == FunctionKind::Optimizer).flat_map(|f| &f.body);
    let norm = norms.into_iter().find(|instr| instr.reads().any(|v| v == gradient)).expect("has a norm");
    norm.outs[0].and_then(as_local).expect("is a local")
}

fn as_local(value: Value) -> Option<LocalId> {
    match value {
        Value::Local(local) => Some(local),
        Value::Global(_) => None,
    }
}

/// Slapo's own verifier compares outputs only, and by position: gradients under each other's names pass it.
#[test]
fn f58_gradients_are_compared_and_by_the_names_of_their_parameters() {
    let names = ["transformer.h.0.ln_1.bias", "transformer.h.1.ln_1.bias"];
    let report = verify(|program| {
        let [a, b] = names.map(|name| gradient(program, name));
        accumulate_into(program, a).outs = vec![Some(Value::Global(u32::MAX))];
        accumulate_into(program, b).outs = vec![Some(Value::Global(a))];
        accumulate_into(program, u32::MAX).outs = vec![Some(Value::Global(b))];
    });
    assert_ne!(verdict_of(&report, "loss"), Some(Verdict::Wrong));
    assert_eq!(verdict_of(&report, "gradients"), Some(Verdict::Wrong));
    // Backward comes to the later layer first, whose gradient stands under the earlier one's name.
    let parting = report.parting.expect("gradients differ");
    assert_eq!((parting.phase, parting.value.as_str()), ("backward", names[0]));
}
