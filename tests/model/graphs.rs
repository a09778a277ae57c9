//! The validator and regions.

use crate::support::model;
use slapo_model::regions::{Regions, calls, region};
use slapo_model::{Arg, Def, Graph, InputSizes, Model, Op, ScopeId, SourceId, ValueId, bind, validate};

fn bound(name: &str) -> (Model, Graph) {
    let model = model(name);
    let sizes = InputSizes { batch: 3, seq: Some(7) };
    let graph = bind(&model, &sizes).unwrap();
    (model, graph)
}

/// Breaks one thing of a good graph and says what the validator finds.
fn faults(edit: impl FnOnce(&mut Graph)) -> Vec<String> {
    let (model, mut graph) = bound("misc");
    edit(&mut graph);
    validate(&model, &graph).iter().map(ToString::to_string).collect()
}

#[test]
fn each_fault_is_found() {
    let far = ValueId(9999);
    assert!(faults(|_| {}).is_empty());
    assert_eq!(faults(|g| g.values[3].name.clear()), ["value 3 has no name"]);
    assert_eq!(faults(|g| g.values[3].name = g.values[4].name.clone()), ["two values are called `p_norm_weight`"]);
    assert_eq!(faults(|g| g.values[3].ty.shape[0] = -1), ["`p_mix_bias` has a negative size"]);
    assert_eq!(
        faults(|g| g.values[3].def = g.values[4].def),
        ["`p_mix_bias` and `p_norm_weight` have the same definition"]
    );
    assert_eq!(faults(|g| g.loss = g.outputs[1]), ["the loss `linear` is no floating scalar"]);
    assert_eq!(faults(|g| g.outputs.push(far)), ["reads value 9999, which is not there"]);
    assert_eq!(
        faults(|g| g.nodes[0].args.push(("weight".into(), Arg::None))),
        ["node 0: argument `weight` is given twice"]
    );
    assert_eq!(
        faults(|g| g.nodes[0].args[0].1 = Arg::Value(g.nodes[5].outs[0].unwrap())),
        ["node 0: reads `add_21` before it is defined"]
    );
    assert_eq!(faults(|g| g.nodes[0].args[0].1 = Arg::Value(far)), ["node 0: reads value 9999, which is not there"]);
    assert_eq!(faults(|g| g.nodes[0].origin.scope = ScopeId(99)), ["node 0: scope out of range"]);
    assert_eq!(faults(|g| g.nodes[0].origin.source = Some(SourceId(99))), ["node 0: source line out of range"]);
    assert_eq!(
        faults(|g| g.nodes[1].op = Op::Dropout { site: 0, p: 1.0 }),
        ["node 1: dropout probability 1 is not in [0, 1)"]
    );
    assert_eq!(
        faults(|g| g.nodes[1].op = Op::Vjp { op: "mul.Tensor".into(), results: 2 }),
        ["node 1: 1 results, but says 2"]
    );
    assert_eq!(
        faults(|g| g.nodes.swap(0, 1)).first().map(String::as_str),
        Some("`embedding` names a definition that is not there")
    );
    assert_eq!(faults(|g| g.inputs.swap(0, 1)).len(), 4);
}

#[test]
fn a_region_has_its_ports_in_order_of_first_use() {
    let (model, graph) = bound("gpt2-tiny");
    let attention = model.find("transformer.h.0.attn").unwrap();
    let [scope] = calls(&model, attention)[..] else { panic!() };
    let region = region(&graph, &model, scope);
    let names = |ids: &[ValueId]| -> Vec<String> { ids.iter().map(|id| graph.value(*id).name.clone()).collect() };
    assert_eq!(names(&region.live_in), ["layer_norm", "expand_2"]);
    assert_eq!(names(&region.live_out), ["getitem_5"]);
    assert!(region.nodes.is_sorted());
    assert_eq!(Regions::new(&graph, &model).module(attention), region);
}

#[test]
fn a_container_is_the_region_of_what_it_holds() {
    let (model, graph) = bound("gpt2-tiny");
    let blocks = model.find("transformer.h").unwrap();
    assert!(calls(&model, blocks).is_empty());
    let regions = Regions::new(&graph, &model);
    let all = regions.module(blocks);
    let each: usize = model.module(blocks).children.iter().map(|block| regions.module(*block).nodes.len()).sum();
    assert_eq!(all.nodes.len(), each);
    assert_eq!(all.live_out.len(), 1);
}

#[test]
fn the_root_is_everything() {
    for name in ["gpt2-tiny", "misc"] {
        let (model, graph) = bound(name);
        let root = region(&graph, &model, ScopeId(0));
        assert_eq!(root.nodes.len(), graph.nodes.len());
        assert_eq!(root.live_out.len(), graph.outputs.len());
        assert!(root.live_in.iter().all(|id| matches!(graph.value(*id).def, Def::Input(_))));
    }
}

#[test]
fn a_module_that_never_ran_has_an_empty_region() {
    let (model, graph) = bound("gpt2-tiny");
    let dropout = model.find("transformer.h.0.attn.attn_dropout").unwrap();
    let regions = Regions::new(&graph, &model);
    assert_eq!(regions.module(dropout), regions.border(Vec::new()));
    assert!(regions.module(dropout).live_in.is_empty());
}
