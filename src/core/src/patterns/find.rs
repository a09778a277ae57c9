//! Finding a pattern in a graph: exact data flow, by backtracking over the orders of commutative operands.
//!
//! A match holds every operator of the pattern, joined as the pattern joins them; what is computed between them is used
//! nowhere else, results apart. What [`super::through`] passes may stand between them. Matches do not overlap: the first
//! in the graph's order wins. Read [`find`], then [`Search::solve`].

use super::operators::{Given, Seen, SlotKind, see};
use super::through::{self, Passed};
use super::{Match, Pattern, Term, TermId, Variant};
use slapo_model::regions::Region;
use slapo_model::sym::Size;
use slapo_model::{Def, Graph, Model, ModuleId, NodeId, ScopeId, ValueId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Steps that one place may take: no pattern of use comes near, and search stays bounded.
const MOST_WORK: u32 = 20_000;

/// How close a pattern came that was not found.
#[derive(Clone, Debug, PartialEq)]
pub struct Miss {
    /// Operators that agree, of how many.
    pub agree: usize,
    pub of: usize,
    /// Terms that agree, numbers and parameters included.
    terms: usize,
    /// The node where the pattern would have ended.
    pub at: NodeId,
    pub why: Why,
}

/// What differs.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// Another operator, or something that is not computed at all.
    Operator { wanted: String, found: String },
    /// A number or an attribute.
    Given { wanted: String, found: String },
    /// A parameter of the pattern would stand for two things.
    Different { param: String },
    /// A value between the operators is used elsewhere too; the operator that uses it, or none if the model returns it.
    Escapes { value: ValueId, by: Option<NodeId> },
    /// An operator lies outside of the module.
    Outside { found: String },
}

/// All matches of `pattern` among the nodes of `region`, or the closest miss.
pub fn find(
    graph: &Graph<Size>,
    model: &Model,
    region: &Region,
    pattern: &Arc<Pattern>,
) -> Result<Vec<Match>, Option<Miss>> {
    let mut search = Search::new(graph, model, region);
    let mut matches = Vec::new();
    // Without an operand two choices may come to the same expression.
    let is_new = |at: &usize| !pattern.variants[..*at].contains(&pattern.variants[*at]);
    let distinct: Vec<usize> = (0..pattern.variants.len()).filter(is_new).collect();
    for at in &region.nodes {
        let mut variants = distinct.iter().map(|i| (*i, &pattern.variants[*i]));
        let found = variants.find_map(|(i, variant)| Some((i, search.from(pattern, variant, *at)?)));
        if let Some((variant, found)) = found {
            search.taken.extend(&found.nodes);
            matches.push(search.finished(pattern, variant, found));
        }
    }
    number(&mut matches);
    if matches.is_empty() { Err(search.miss) } else { Ok(matches) }
}

/// Numbers matches that share a module.
fn number(matches: &mut [Match]) {
    let within: Vec<ModuleId> = matches.iter().map(|found| found.within).collect();
    for (at, found) in matches.iter_mut().enumerate() {
        let same = |at: &usize| within[*at] == found.within;
        if (0..within.len()).filter(same).count() > 1 {
            found.number = Some((0..at).filter(same).count() as u32);
        }
    }
}

impl Miss {
    pub fn is_closer(&self, than: &Miss) -> bool {
        (self.agree, self.terms) > (than.agree, than.terms)
    }
}

struct Search<'g> {
    graph: &'g Graph<Size>,
    model: &'g Model,
    region: &'g Region,
    inside: Vec<bool>,
    /// By value.
    readers: Vec<Vec<NodeId>>,
    returned: BTreeSet<ValueId>,
    /// Nodes of former matches.
    taken: BTreeSet<NodeId>,
    miss: Option<Miss>,
    work: u32,
}

/// A pattern matched in part.
#[derive(Clone)]
struct Partial {
    /// By term.
    terms: Vec<Option<Given>>,
    /// By parameter.
    bound: Vec<Given>,
    nodes: BTreeSet<NodeId>,
    /// Casts to a narrower type among them.
    narrowed: Vec<NodeId>,
    results: Vec<ValueId>,
    /// Operators so far.
    agree: usize,
}

/// One pattern at one place.
struct Place<'p> {
    pattern: &'p Pattern,
    variant: &'p Variant,
    at: NodeId,
}

/// A term, and what stands there.
#[derive(Clone)]
struct Goal {
    term: TermId,
    given: Given,
    /// Who reads it computes every row by itself: it may come through a reshape that keeps rows.
    by_row: bool,
}

impl Place<'_> {
    /// Whether the term and what stands there are both numbers or both tensors.
    fn may_be(&self, goal: &Goal) -> bool {
        let is_number = match &self.variant.terms[goal.term] {
            Term::Param(at) => self.pattern.params[*at].is_number,
            Term::Given(_) => true,
            Term::Apply(..) => false,
        };
        is_number == !matches!(goal.given, Given::Value(_))
    }
}

impl<'g> Search<'g> {
    fn new(graph: &'g Graph<Size>, model: &'g Model, region: &'g Region) -> Search<'g> {
        let mut inside = vec![false; graph.nodes.len()];
        region.nodes.iter().for_each(|id| inside[id.0 as usize] = true);
        let mut readers = vec![Vec::new(); graph.values.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            node.reads().for_each(|value| readers[value.0 as usize].push(NodeId(index as u32)));
        }
        let mutated = model.mutations.iter().map(|(_, value)| value);
        let returned = graph.outputs.iter().chain([&graph.loss]).chain(mutated).copied().collect();
        Search { graph, model, region, inside, readers, returned, taken: BTreeSet::new(), miss: None, work: 0 }
    }

    /// A match whose first result is what the node `at` computes.
    fn from(&mut self, pattern: &Pattern, variant: &Variant, at: NodeId) -> Option<Partial> {
        let root = *variant.results.first()?;
        let value = (*self.graph.node(at).outs.first()?)?;
        // Where nothing agrees there is no near miss.
        if !self.is_operator(variant, root, at) {
            return None;
        }
        let start = Partial {
            terms: vec![None; variant.terms.len()],
            bound: vec![Given::Absent; pattern.params.len()],
            nodes: BTreeSet::new(),
            narrowed: Vec::new(),
            results: vec![value],
            agree: 0,
        };
        self.work = 0;
        let goal = Goal { term: root, given: Given::Value(value), by_row: false };
        self.solve(&Place { pattern, variant, at }, vec![goal], start)
    }

    fn is_operator(&self, variant: &Variant, term: TermId, at: NodeId) -> bool {
        let wanted = if let Term::Apply(operator, _) = &variant.terms[term] { operator } else { return false };
        see(self.graph, self.graph.node(at)).is_some_and(|seen| seen.operator == *wanted)
    }

    /// Meets `goals` from the last to the first, then looks for the results that are left.
    fn solve(&mut self, place: &Place, mut goals: Vec<Goal>, mut partial: Partial) -> Option<Partial> {
        while let Some(Goal { term, given, by_row }) = goals.pop() {
            self.work += 1;
            if self.work > MOST_WORK {
                return None;
            }
            let is_computed = matches!(place.variant.terms[term], Term::Apply(..));
            let (given, passed) = self.through(given, is_computed, by_row);
            if is_computed {
                partial.nodes.extend(passed.nodes);
                partial.narrowed.extend(passed.narrowed);
            }
            if let Some(known) = &partial.terms[term] {
                let same = if known.is(&given) { Some(given.clone()) } else { self.unwidened(known, &given) };
                let Some(same) = same else {
                    return self.missed(place, &partial, self.differs(place, term, &given));
                };
                if let Term::Param(at) = &place.variant.terms[term] {
                    partial.bound[*at] = same.clone();
                }
                partial.terms[term] = Some(same);
                continue;
            }
            partial.terms[term] = Some(given.clone());
            match &place.variant.terms[term] {
                Term::Param(at) => {
                    let param = &place.pattern.params[*at];
                    match (param.is_number, &given) {
                        (false, Given::Value(_)) | (true, Given::Number(_)) => partial.bound[*at] = given,
                        _ => {
                            let wanted = if param.is_number { "a number" } else { "a tensor" };
                            let wanted = format!("{wanted} for `{}`", param.name);
                            let found = self.shown(&given);
                            return self.missed(place, &partial, Why::Given { wanted, found });
                        }
                    }
                }
                Term::Given(wanted) => {
                    if !wanted.is(&given) {
                        let (wanted, found) = (self.shown(wanted), self.shown(&given));
                        return self.missed(place, &partial, Why::Given { wanted, found });
                    }
                }
                Term::Apply(operator, args) => {
                    let node = match self.computed(&given, operator.name) {
                        Ok(node) => node,
                        Err(why) => return self.missed(place, &partial, why),
                    };
                    let seen = see(self.graph, self.graph.node(node))?;
                    partial.nodes.insert(node);
                    partial.agree += 1;
                    let fitted = match self.operands(place.variant, args, &seen) {
                        Ok(fitted) => fitted,
                        Err(why) => return self.missed(place, &partial, why),
                    };
                    if let (true, [a, b]) = (operator.commutes, fitted.as_slice()) {
                        let straight = [b.clone(), a.clone()];
                        let crossed = [Goal { term: b.term, ..a.clone() }, Goal { term: a.term, ..b.clone() }];
                        let fits = |goals: &[Goal]| goals.iter().all(|goal| place.may_be(goal));
                        match (fits(&straight), fits(&crossed)) {
                            (true, true) => {
                                let goals = [goals.as_slice(), &straight].concat();
                                if let Some(found) = self.solve(place, goals, partial.clone()) {
                                    return Some(found);
                                }
                            }
                            (_, false) => {
                                goals.extend(straight);
                                continue;
                            }
                            (false, true) => {}
                        }
                        goals.extend(crossed);
                    } else {
                        goals.extend(fitted.into_iter().rev());
                    }
                }
            }
        }
        self.next_result(place, partial)
    }

    /// The next result of a pattern with several, at any node; behind the last one, the match if nothing leaves it.
    fn next_result(&mut self, place: &Place, partial: Partial) -> Option<Partial> {
        let Some(term) = place.variant.results.get(partial.results.len()).copied() else {
            let mut partial = partial;
            if let Err(why) = self.close_detours(&mut partial) {
                return self.missed(place, &partial, why);
            }
            self.leave_views_of_results(&mut partial);
            return match self.escape(&partial) {
                None => Some(partial),
                Some(why) => self.missed(place, &partial, why),
            };
        };
        if let Some(Given::Value(known)) = partial.terms[term].clone() {
            let results = [partial.results.as_slice(), &[known]].concat();
            return self.next_result(place, Partial { results, ..partial });
        }
        let region = self.region;
        let open = region.nodes.iter().filter(|at| !partial.nodes.contains(at));
        let open: Vec<NodeId> = open.filter(|at| self.is_operator(place.variant, term, **at)).copied().collect();
        if let ([], Term::Apply(operator, _)) = (open.as_slice(), &place.variant.terms[term]) {
            let why = Why::Operator { wanted: format!("another {}", operator.name), found: "none".to_string() };
            return self.missed(place, &partial, why);
        }
        open.into_iter().find_map(|at| {
            let value = (*self.graph.node(at).outs.first()?)?;
            let results = [partial.results.as_slice(), &[value]].concat();
            let goal = Goal { term, given: Given::Value(value), by_row: false };
            self.solve(place, vec![goal], Partial { results, ..partial.clone() })
        })
    }

    /// Pairs terms with what a node gives for them; dimensions, which depend on its rank, are compared at once.
    fn operands(&self, variant: &Variant, args: &[Option<TermId>], seen: &Seen) -> Result<Vec<Goal>, Why> {
        let mut goals = Vec::with_capacity(args.len());
        let (mut wanted, mut found) = (Vec::new(), Vec::new());
        for (at, ((slot, arg), given)) in seen.operator.slots.iter().zip(args).zip(&seen.given).enumerate() {
            match arg.map(|term| (term, &variant.terms[term])) {
                Some((_, Term::Given(dims))) if slot.kind == SlotKind::Dims => {
                    wanted.extend(slot.fit(dims.clone(), seen.rank));
                    found.push(given.clone());
                }
                Some((_, Term::Given(sizes))) if slot.kind == SlotKind::Sizes => {
                    if slot.fit(sizes.clone(), seen.rank).as_ref() != Some(given) {
                        let wanted = format!("`{}: {sizes}`", slot.name);
                        return Err(Why::Given { wanted, found: self.shown(given) });
                    }
                }
                Some((term, _)) => {
                    goals.push(Goal { term, given: given.clone(), by_row: through::is_by_row(seen, at) })
                }
                None if slot.usual_of(seen.rank).is(given) => {}
                // What the pattern leaves out must be what leaving it out means.
                None => {
                    let wanted = format!("`{}: {}`", slot.name, slot.usual());
                    return Err(Why::Given { wanted, found: self.shown(given) });
                }
            }
        }
        let is_same = match (seen.is_swap, wanted.as_slice()) {
            (true, [a, b]) => found == [a.clone(), b.clone()] || found == [b.clone(), a.clone()],
            _ => found == wanted,
        };
        let shown = |dims: &[Given]| dims.iter().map(Given::to_string).collect::<Vec<_>>().join(", ");
        match is_same {
            true => Ok(goals),
            false => Err(Why::Given {
                wanted: format!("dimension {}", shown(&wanted)),
                found: format!("dimension {}", shown(&found)),
            }),
        }
    }

    /// The node that computes a value by the operator of that name, if it may be part of the match.
    fn computed(&self, given: &Given, operator: &str) -> Result<NodeId, Why> {
        let found = || self.shown(given);
        let wrong = || Why::Operator { wanted: operator.to_string(), found: found() };
        let Given::Value(value) = given else { return Err(wrong()) };
        let Def::Node(node, 0) = self.graph.value(*value).def else { return Err(wrong()) };
        match see(self.graph, self.graph.node(node)) {
            Some(seen) if seen.operator.name != operator => Err(wrong()),
            None => Err(wrong()),
            Some(_) if !self.inside[node.0 as usize] => Err(Why::Outside { found: found() }),
            Some(_) if self.taken.contains(&node) => Err(wrong()),
            Some(_) => Ok(node),
        }
    }

    /// A value behind the nodes that may stand in front of an operator, or of a parameter, of the pattern; and these.
    fn through(&self, given: Given, is_computed: bool, by_row: bool) -> (Given, Passed) {
        let mut passed = Passed::default();
        let Given::Value(mut value) = given else { return (given, passed) };
        while let Def::Node(id, 0) = self.graph.value(value).def
            && self.inside[id.0 as usize]
        {
            let node = self.graph.node(id);
            let (from, between) = match (through::unchanged(self.graph, node), through::cast(self.graph, node)) {
                (Some((from, between)), _) => (from, between),
                (None, Some(cast)) if is_computed => {
                    passed.narrowed.extend((!cast.is_wider).then_some(id));
                    (cast.from, None)
                }
                _ if is_computed && by_row => match through::reshaped(self.graph, node) {
                    Some(from) => (from, None),
                    None => break,
                },
                _ => break,
            };
            passed.nodes.push(id);
            passed.nodes.extend(between);
            value = from;
        }
        (Given::Value(value), passed)
    }

    /// What both are, casts to a wider type apart.
    fn unwidened(&self, a: &Given, b: &Given) -> Option<Given> {
        let (Given::Value(a), Given::Value(b)) = (a, b) else { return None };
        let strip = |value: ValueId| self.widened(value).map_or(value, |(_, from)| from);
        (strip(*a) == strip(*b)).then(|| Given::Value(strip(*a)))
    }

    /// The cast to a wider type that computes a value, and of what.
    fn widened(&self, value: ValueId) -> Option<(NodeId, ValueId)> {
        let Def::Node(id, 0) = self.graph.value(value).def else { return None };
        let cast = through::cast(self.graph, self.graph.node(id)).filter(|cast| cast.is_wider);
        cast.filter(|_| self.inside[id.0 as usize]).map(|cast| (id, cast.from))
    }

    /// A cast to a narrower type goes back to where a wider one came from: what is computed between is the pattern's
    /// expression with fewer digits lost. Parameters that are such casts stand for what was cast.
    fn close_detours(&self, partial: &mut Partial) -> Result<(), Why> {
        for id in partial.narrowed.clone() {
            let Some(cast) = through::cast(self.graph, self.graph.node(id)) else { continue };
            let is_way_there = |value: ValueId| {
                let widened = self.widened(value)?;
                let types = (self.graph.ty(widened.1).dtype, self.graph.ty(value).dtype);
                (types == (cast.to, self.graph.ty(cast.from).dtype)).then_some(widened)
            };
            let outs = partial.nodes.iter().filter_map(|id| *self.graph.node(*id).outs.first()?);
            let mut is_closed = outs.into_iter().any(|out| is_way_there(out).is_some());
            for bound in &mut partial.bound {
                let Given::Value(value) = bound else { continue };
                let Some((way, from)) = is_way_there(*value) else { continue };
                is_closed = true;
                if self.readers[value.0 as usize].iter().all(|reader| partial.nodes.contains(reader)) {
                    partial.nodes.insert(way);
                }
                *bound = Given::Value(from);
            }
            if !is_closed {
                let (wanted, found) = ("a value".to_string(), format!("a cast to {}", cast.to.name()));
                return Err(Why::Given { wanted, found });
            }
        }
        Ok(())
    }

    /// Views of a result that are used elsewhere are no part of the match.
    fn leave_views_of_results(&self, partial: &mut Partial) {
        let Partial { nodes, results, .. } = partial;
        let inner = nodes.clone();
        nodes.retain(|id| {
            let node = self.graph.node(*id);
            let of = through::unchanged(self.graph, node).map(|(from, _)| from);
            let is_view = of.or_else(|| through::reshaped(self.graph, node)).is_some_and(|of| results.contains(&of));
            let mut readers = node.outs.iter().flatten().flat_map(|out| &self.readers[out.0 as usize]);
            !is_view || readers.all(|reader| inner.contains(reader))
        });
    }

    /// A value of the match that is used outside of it, results apart.
    fn escape(&self, partial: &Partial) -> Option<Why> {
        for id in &partial.nodes {
            for value in self.graph.node(*id).outs.iter().flatten().filter(|out| !partial.results.contains(out)) {
                let by = self.readers[value.0 as usize].iter().find(|reader| !partial.nodes.contains(reader));
                if by.is_some() || self.returned.contains(value) {
                    return Some(Why::Escapes { value: *value, by: by.copied() });
                }
            }
        }
        None
    }

    fn differs(&self, place: &Place, term: TermId, given: &Given) -> Why {
        match &place.variant.terms[term] {
            Term::Param(at) => Why::Different { param: place.pattern.params[*at].name.clone() },
            Term::Apply(operator, _) => {
                Why::Operator { wanted: format!("the same {}", operator.name), found: self.shown(given) }
            }
            Term::Given(wanted) => Why::Given { wanted: self.shown(wanted), found: self.shown(given) },
        }
    }

    /// Keeps the closest miss, the first of those equally close.
    fn missed<T>(&mut self, place: &Place, partial: &Partial, why: Why) -> Option<T> {
        let terms = partial.terms.iter().flatten().count();
        let miss = Miss { agree: partial.agree, of: place.variant.operators(), terms, at: place.at, why };
        if self.miss.as_ref().is_none_or(|known| miss.is_closer(known)) {
            self.miss = Some(miss);
        }
        None
    }

    fn shown(&self, given: &Given) -> String {
        match given {
            Given::Absent => "nothing".to_string(),
            Given::Value(value) => match self.graph.definition(*value) {
                Some(node) => see(self.graph, node).map_or(node.name(), |seen| seen.operator.name).to_string(),
                None => format!("the value `{}`", self.graph.value(*value).name),
            },
            other => other.to_string(),
        }
    }

    fn finished(&self, pattern: &Arc<Pattern>, variant: usize, found: Partial) -> Match {
        let scopes = found.nodes.iter().map(|id| self.graph.node(*id).origin.scope);
        let within = innermost(self.model, scopes);
        let outs = found.nodes.iter().flat_map(|id| self.graph.node(*id).outs.iter().flatten());
        Match {
            pattern: pattern.clone(),
            within: self.model.scopes[within.0 as usize].module,
            values: outs.copied().collect(),
            results: found.results,
            bound: found.bound,
            number: None,
            variant,
            age: 0,
        }
    }
}

/// The innermost call around all of `scopes`; the model's own if there are none.
pub fn innermost(model: &Model, scopes: impl Iterator<Item = ScopeId>) -> ScopeId {
    let around = |scope: ScopeId| {
        let mut chain: Vec<ScopeId> =
            std::iter::successors(Some(scope), |scope| model.scopes[scope.0 as usize].parent).collect();
        chain.reverse();
        chain
    };
    let common =
        scopes.map(around).reduce(|a, b| a.into_iter().zip(b).take_while(|(a, b)| a == b).map(|(a, _)| a).collect());
    common.and_then(|chain| chain.last().copied()).unwrap_or_default()
}
