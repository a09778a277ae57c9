//! Which input of the archive is which value that enters the module, and which output is which value that leaves it.
//!
//! By the pairs that the step gives, then by names that are the same; what is left alone on both sides is bound. Nothing is
//! bound by its position.

use super::{Replacing, contract, listed, refuse};
use crate::passes::borders::differentiable;
use crate::passes::constant::Constants;
use crate::primitives::{Problem, Refusal};
use crate::schedule::{Argument, Place, Port};
use slapo_model::regions::Region;
use slapo_model::{Graph, ValueId};
use slapo_program::DType;

/// The ports of the archive bound to values of the model.
pub struct Bound {
    /// By input of the archive.
    pub inputs: Vec<ValueId>,
    /// Outputs of the archive with what they are in the model.
    pub outputs: Vec<(ValueId, ValueId)>,
    /// What enters and carries a gradient, in the order in which the model's module reads it.
    pub in_order: Vec<ValueId>,
    /// By input and by output, the position among what enters and leaves the region.
    positions: (Vec<usize>, Vec<usize>),
}

/// A value that crosses the module's border.
struct Crossing {
    name: String,
    /// A fixed mask: an attention may know it without being given it.
    is_known: bool,
}

/// One side of the border, in words.
struct Side {
    verb: &'static str,
    noun: &'static str,
    point: &'static str,
}

const INPUTS: Side = Side { verb: "takes", noun: "input", point: "input" };
const OUTPUTS: Side = Side { verb: "gives", noun: "output", point: "output" };

impl Replacing<'_, '_> {
    pub(super) fn ports(&self, region: &Region) -> Result<Bound, Refusal> {
        let (entering, leaving) = self.pairs(region)?;
        let mut constants = Constants::new(&self.bound);
        let mut crossing = |value: &ValueId, may_be_known: bool| Crossing {
            name: self.graph().value(*value).name.clone(),
            is_known: may_be_known && self.graph().ty(*value).dtype == DType::Bool && constants.get(*value).is_some(),
        };
        let live_in: Vec<Crossing> = region.live_in.iter().map(|value| crossing(value, true)).collect();
        let live_out: Vec<Crossing> = region.live_out.iter().map(|value| crossing(value, false)).collect();
        let inputs: Vec<&str> = self.archive.inputs.iter().map(|input| input.name.as_str()).collect();
        let outputs: Vec<&str> = self.outputs().map(|value| self.archive.graph.value(value).name.as_str()).collect();
        let inputs = self.side(&INPUTS, &inputs, &live_in, &entering)?;
        let outputs = self.side(&OUTPUTS, &outputs, &live_out, &leaving)?;
        self.all_are_read()?;
        Ok(self.bound((inputs, outputs), region))
    }

    /// The ports of another call of the same module.
    pub(super) fn ports_like(&self, first: &Bound, region: &Region) -> Result<Bound, Refusal> {
        let (inputs, outputs) = &first.positions;
        let fits = |positions: &[usize], values: &[ValueId]| positions.iter().all(|at| *at < values.len());
        match fits(inputs, &region.live_in) && outputs.len() == region.live_out.len() {
            true => Ok(self.bound(first.positions.clone(), region)),
            false => {
                let message = format!("the calls of `{}` have different inputs or outputs", self.path);
                refuse(contract(message, "is called in several ways"))
            }
        }
    }

    fn bound(&self, positions: (Vec<usize>, Vec<usize>), region: &Region) -> Bound {
        let inputs: Vec<ValueId> = positions.0.iter().map(|at| region.live_in[*at]).collect();
        let outputs = self.outputs().zip(positions.1.iter().map(|at| region.live_out[*at])).collect();
        let flows = differentiable(&self.bound);
        let in_order = region.live_in.iter().copied().filter(|value| flows[value.0 as usize]).collect();
        Bound { inputs, outputs, in_order, positions }
    }

    /// Whether the archive first reads what carries a gradient in another order than the module.
    pub(super) fn is_reordered(&self, bound: &Bound) -> bool {
        let graph = &self.archive.graph;
        let mut order: Vec<ValueId> = Vec::new();
        for read in graph.nodes.iter().flat_map(|node| node.reads()) {
            let input = graph.inputs.iter().position(|input| *input == read);
            if let Some(value) = input.map(|at| bound.inputs[at])
                && bound.in_order.contains(&value)
                && !order.contains(&value)
            {
                order.push(value);
            }
        }
        order != bound.in_order
    }

    fn outputs(&self) -> impl Iterator<Item = ValueId> {
        self.archive.graph.outputs.iter().copied()
    }

    /// The pairs of the step: an input's name with what enters, an output's name with what leaves.
    #[expect(clippy::type_complexity, reason = "two lists of the same pairs")]
    fn pairs<'s>(&'s self, region: &Region) -> Result<(Vec<(&'s str, usize)>, Vec<(&'s str, usize)>), Refusal> {
        let (mut entering, mut leaving) = (Vec::new(), Vec::new());
        let Some(Argument::List(pairs)) = self.step.arg("ports") else { return Ok((entering, leaving)) };
        for pair in pairs {
            let Argument::List(pair) = pair else { continue };
            let [Argument::Text(name), Argument::Path(path)] = pair.as_slice() else { continue };
            let point = self.state.ports.at(path).filter(|point| !point.is_gradient);
            let point = point.filter(|point| point.of == Place::Module(self.module));
            let Some((point, value)) = point.and_then(|point| Some((point, self.state.ports.value(&point)?))) else {
                let message = format!("`{path}` is no value that enters or leaves `{}`", self.path);
                return refuse(
                    contract(message, format!("given for `{name}`"))
                        .help("ports are points of the module itself: `.input(0)`, `.output()`"),
                );
            };
            let (side, values) = match point.port {
                Port::Input(_) => (&mut entering, &region.live_in),
                _ => (&mut leaving, &region.live_out),
            };
            match values.iter().position(|known| *known == value) {
                Some(at) => side.push((name.as_str(), at)),
                None => {
                    let message = format!("`{path}` is no longer a value at the border of `{}`", self.path);
                    return refuse(contract(message, format!("given for `{name}`")));
                }
            }
        }
        Ok((entering, leaving))
    }

    /// The position of the model's value for every port of the archive.
    fn side(
        &self,
        side: &Side,
        wanted: &[&str],
        offered: &[Crossing],
        pairs: &[(&str, usize)],
    ) -> Result<Vec<usize>, Refusal> {
        let mut bound: Vec<Option<usize>> = vec![None; wanted.len()];
        let Side { verb, noun, point } = side;
        for (name, at) in pairs {
            let Some(port) = wanted.iter().position(|known| known == name) else {
                let message = format!("`{}` has no {noun} `{name}`", self.name);
                return refuse(
                    contract(message, format!("no such {noun}")).help(format!("its {noun}s are {}", listed(wanted))),
                );
            };
            if bound[port].is_some() || bound.contains(&Some(*at)) {
                let message = format!("`ports` gives `{name}` or `{}` twice", offered[*at].name);
                return refuse(contract(message, "one pair for every port"));
            }
            bound[port] = Some(*at);
        }
        for (port, name) in wanted.iter().enumerate() {
            let same = offered.iter().position(|one| one.name == *name).filter(|at| !bound.contains(&Some(*at)));
            bound[port] = bound[port].or(same);
        }
        let left: Vec<usize> = (0..wanted.len()).filter(|port| bound[*port].is_none()).collect();
        let over: Vec<usize> = (0..offered.len()).filter(|at| !bound.contains(&Some(*at))).collect();
        let needed: Vec<usize> = over.iter().copied().filter(|at| !offered[*at].is_known).collect();
        match (left.as_slice(), needed.as_slice(), over.as_slice()) {
            ([], [], _) => {}
            ([port], [at], _) | ([port], [], [at]) => bound[*port] = Some(*at),
            _ => return refuse(self.other_ports(side, wanted, offered, (&left, &over))),
        }
        // Every port is bound by now.
        let complete: Option<Vec<usize>> = bound.into_iter().collect();
        complete.ok_or_else(|| contract(format!("`{}` {verb} other {point}s", self.name), "does not fit").into())
    }

    fn other_ports(
        &self,
        Side { verb, noun, point }: &Side,
        wanted: &[&str],
        offered: &[Crossing],
        (left, over): (&[usize], &[usize]),
    ) -> Problem {
        let plural = |count: usize| if count == 1 { (*noun).to_string() } else { format!("{noun}s") };
        let numbered = offered.iter().enumerate().map(|(at, one)| format!("{} = .{point}({at})", one.name));
        let message = format!(
            "`{}` {verb} {} {}, {}; `{}` has {}, {}",
            self.name,
            wanted.len(),
            plural(wanted.len()),
            listed(wanted),
            self.path,
            offered.len(),
            listed(numbered),
        );
        let open = listed(left.iter().map(|port| wanted[*port]));
        let spare = listed(over.iter().map(|at| &offered[*at].name));
        let problem = contract(message, format!("{noun}s do not fit"));
        match (left, over) {
            ([], _) => problem.note(format!("{spare} would be lost")),
            (_, []) => problem.note(format!("nothing is left for {open}")),
            ([first, ..], [at, ..]) => problem
                .note(format!("left without a partner: {open} in the archive, {spare} in the model"))
                .help(format!("say which is which: `ports: [[{:?}, ….{point}({at})], …]`", wanted[*first])),
        }
    }

    /// An input that the archive takes and does not read would be lost.
    fn all_are_read(&self) -> Result<(), Refusal> {
        let graph = &self.archive.graph;
        let names = graph.inputs.iter().zip(&self.archive.inputs).filter(|(value, _)| !is_read(graph, **value));
        let unread: Vec<&str> = names.map(|(_, input)| input.name.as_str()).collect();
        match unread.is_empty() {
            true => Ok(()),
            false => {
                let message = format!("`{}` never reads its input {}", self.name, listed(unread));
                refuse(contract(message, "an input would be lost"))
            }
        }
    }
}

/// Whether a node reads it, or it is returned.
pub(super) fn is_read<I>(graph: &Graph<I>, value: ValueId) -> bool {
    let mut reads = graph.nodes.iter().flat_map(|node| node.reads());
    reads.any(|read| read == value) || graph.outputs.contains(&value)
}
