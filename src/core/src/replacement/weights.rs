//! Which weight of the archive is which of the model: total on both sides, so that nothing is new and nothing is lost.
//!
//! Values in the archive are never used: weights are those of the model, under their own paths. Buffers go the same way,
//! but for tables of whole numbers, which a mask may be made of; masks are compared for what they let through.

use super::ports::is_read;
use super::types::typed;
use super::{Call, Replacing, contract, listed, refuse};
use crate::primitives::Refusal;
use crate::schedule::{Argument, Place};
use slapo_model::{Def, Graph, Type, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A weight of the archive.
struct Own {
    value: ValueId,
    /// Every name of it.
    names: Vec<String>,
    ty: Type,
    is_constant: bool,
}

/// A weight of the model, or several that are joined, with the paths that led there.
struct Source {
    values: Vec<ValueId>,
    /// Along which they are joined.
    dim: usize,
    /// `a.weight`, or `a.weight`, `b.weight`: to be quoted.
    path: String,
}

/// What stands for a weight of the archive: one of the model's, or several joined along a dimension.
pub(super) struct Weight {
    pub values: Vec<ValueId>,
    pub dim: usize,
}

fn path_of(argument: &Argument) -> Option<&String> {
    if let Argument::Path(path) = argument { Some(path) } else { None }
}

impl Replacing<'_, '_> {
    /// The model's weight for every one of the archive.
    pub(super) fn weights(&self, calls: &[Call]) -> Result<BTreeMap<ValueId, Weight>, Refusal> {
        let own = self.own();
        let sources = match self.step.arg("weights") {
            Some(Argument::List(pairs)) => self.given(&own, pairs)?,
            _ => self.same_names(&own)?,
        };
        let needed = self.needed(calls);
        self.none_is_new(&own, &sources)?;
        for (own, source) in own.iter().zip(&sources) {
            if let Some(source) = source {
                self.fits(own, source, &needed)?;
            }
        }
        self.none_is_doubled(&own, &sources, calls)?;
        self.none_is_lost(&own, &sources, &needed)?;
        let weight = |Source { values, dim, .. }| Weight { values, dim };
        let found = own.iter().zip(sources).filter_map(|(own, source)| Some((own.value, source.map(weight)?)));
        Ok(found.collect())
    }

    fn own(&self) -> Vec<Own> {
        let archive = self.archive;
        let values = archive.graph.values.iter().enumerate();
        let of = |(at, value): (usize, &slapo_model::Value<_>)| {
            let value_id = ValueId(at as u32);
            Some(match value.def {
                Def::Parameter(id) => {
                    let known = archive.parameter(id);
                    let ty = Type { dtype: known.dtype, shape: known.shape.clone() };
                    Own { value: value_id, names: known.names.clone(), ty, is_constant: false }
                }
                Def::Buffer(id) => {
                    let known = &archive.buffers[id.0 as usize];
                    let ty = Type { dtype: known.dtype, shape: known.shape.clone() };
                    Own { value: value_id, names: vec![known.name.clone()], ty, is_constant: known.module.is_none() }
                }
                _ => return None,
            })
        };
        values.filter_map(of).collect()
    }

    /// What the module reads of its weights.
    fn needed(&self, calls: &[Call]) -> BTreeSet<ValueId> {
        let nodes = calls.iter().flat_map(|call| &call.region.nodes);
        let reads = nodes.flat_map(|id| self.bound.node(*id).reads());
        let is_weight = |value: &ValueId| match self.bound.value(*value).def {
            Def::Parameter(_) => true,
            Def::Buffer(_) => self.bound.ty(*value).dtype.is_float(),
            _ => false,
        };
        reads.filter(is_weight).collect()
    }

    /// By the pairs of the step.
    fn given(&self, own: &[Own], pairs: &[Argument]) -> Result<Vec<Option<Source>>, Refusal> {
        let mut sources: Vec<Option<Source>> = own.iter().map(|_| None).collect();
        for pair in pairs {
            let Argument::List(pair) = pair else { continue };
            let [Argument::Text(name), given] = pair.as_slice() else { continue };
            let Some(at) = own.iter().position(|own| own.names.contains(name)) else {
                let known = own.iter().flat_map(|own| &own.names);
                return refuse(
                    contract(format!("`{}` has no weight `{name}`", self.name), "no such weight")
                        .help(format!("it has {}", listed(known))),
                );
            };
            let paths: Vec<&String> = match given {
                Argument::List(list) => list.iter().filter_map(path_of).collect(),
                one => path_of(one).into_iter().collect(),
            };
            let source = self.joined(&paths, &own[at]);
            let Some(source) = source else {
                let message = format!("{}, given for `{name}`, is no parameter and no buffer", listed(paths));
                return refuse(contract(message, "no weight"));
            };
            match &sources[at] {
                Some(known) if known.values != source.values || own[at].names.len() == 1 => {
                    let names = listed(&own[at].names);
                    let (both, path) = (&known.path, &source.path);
                    let message = format!("{names} of `{}` would be both `{both}` and `{path}`", self.name);
                    return refuse(contract(message, "one weight from two"));
                }
                _ => sources[at] = Some(source),
            }
        }
        Ok(sources)
    }

    /// By names below the module.
    fn same_names(&self, own: &[Own]) -> Result<Vec<Option<Source>>, Refusal> {
        let mut sources = Vec::with_capacity(own.len());
        for own in own {
            let found = own.names.iter().filter_map(|name| self.source(format!("{}.{name}", self.path)));
            let found: Vec<Source> = found.collect();
            if let [first, .., last] = found.as_slice()
                && first.values != last.values
            {
                let names = listed(&own.names);
                let message = format!("{names} are one weight in `{}`, and two in `{}`", self.name, self.path);
                return refuse(contract(message, "one weight from two"));
            }
            sources.push(found.into_iter().next());
        }
        Ok(sources)
    }

    fn source(&self, path: String) -> Option<Source> {
        let def = match Place::at(self.state.model, &path)? {
            Place::Parameter { id, .. } => Def::Parameter(id),
            Place::Buffer { id, .. } => Def::Buffer(id),
            Place::Module(_) => return None,
        };
        let value = self.bound.values.iter().position(|value| value.def == def)?;
        Some(Source { values: vec![ValueId(value as u32)], dim: 0, path })
    }

    /// Weights that are one in the archive, joined along the dimension in which they differ from it.
    fn joined(&self, paths: &[&String], own: &Own) -> Option<Source> {
        let parts: Vec<Source> = paths.iter().map(|path| self.source((*path).clone())).collect::<Option<_>>()?;
        let values: Vec<ValueId> = parts.iter().flat_map(|part| part.values.clone()).collect();
        let first = &self.bound.ty(*values.first()?).shape;
        let differs = |dim: &usize| own.ty.shape.get(*dim) != first.get(*dim);
        let dim = if values.len() > 1 { (0..first.len()).find(differs).unwrap_or(0) } else { 0 };
        let path = parts.iter().map(|part| part.path.as_str()).collect::<Vec<_>>().join("`, `");
        Some(Source { values, dim, path })
    }

    /// Every weight that the archive computes with is one of the model's.
    fn none_is_new(&self, own: &[Own], sources: &[Option<Source>]) -> Result<(), Refusal> {
        let open = own.iter().zip(sources).filter(|(own, source)| source.is_none() && self.reads(own.value));
        let open: Vec<&Own> = open.map(|(own, _)| own).collect();
        let Some(first) = open.first() else { return Ok(()) };
        let names = listed(open.iter().filter_map(|own| own.names.first()));
        let verb = if open.len() == 1 { "has" } else { "have" };
        let message = format!("{names} of `{}` {verb} no source in `{}`", self.name, self.path);
        let problem = contract(message, "weights would be new");
        refuse(match (first.is_constant, first.names.first()) {
            (true, _) => problem.help("a constant tensor of the archive is not taken over: compute it in `forward`"),
            (false, name) => problem.help(format!(
                "say which parameter each is: `weights: [[{:?}, …], …]`, or `weights: by_name` where names agree",
                name.map_or("", String::as_str)
            )),
        })
    }

    fn fits(&self, own: &Own, source: &Source, needed: &BTreeSet<ValueId>) -> Result<(), Refusal> {
        let name = &own.names[0];
        if let Some(unused) = source.values.iter().find(|value| !needed.contains(value)) {
            let message = format!("`{}` does not use `{}`, given for `{name}`", self.path, self.weight(*unused));
            return refuse(contract(message, "not a weight of the module"));
        }
        let found = &self.together(source);
        if own.ty == *found {
            return Ok(());
        }
        let (here, there) = (typed(&own.ty), typed(found));
        let message = format!("`{name}` of `{}` is {here}, `{}` is {there}", self.name, source.path);
        let problem = contract(message, "another type");
        let mut turned = own.ty.shape.clone();
        turned.reverse();
        refuse(match turned == found.shape {
            true => problem.help("weights are taken as they are stored: transpose it in the archive's `forward`"),
            false => problem,
        })
    }

    /// The type of what the weights of a source are together.
    fn together(&self, source: &Source) -> Type {
        let types = || source.values.iter().map(|value| self.bound.ty(*value));
        let mut ty = types().next().cloned().unwrap_or(Type { dtype: slapo_program::DType::F32, shape: Vec::new() });
        if let Some(size) = ty.shape.get_mut(source.dim) {
            *size = types().filter_map(|ty| ty.shape.get(source.dim)).sum();
        }
        ty
    }

    /// Two weights that come from one are tied, which they must be in the model too.
    fn none_is_doubled(&self, own: &[Own], sources: &[Option<Source>], calls: &[Call]) -> Result<(), Refusal> {
        let uses = |value: ValueId| {
            let nodes = calls.iter().take(1).flat_map(|call| &call.region.nodes);
            nodes.filter(|id| self.bound.node(**id).reads().any(|read| read == value)).count()
        };
        let mut known: BTreeMap<ValueId, &str> = BTreeMap::new();
        for (own, source) in own.iter().zip(sources) {
            let Some(source) = source else { continue };
            for value in &source.values {
                if let Some(first) = known.insert(*value, &own.names[0])
                    && uses(*value) < 2
                {
                    let path = self.weight(*value);
                    let message = format!("`{path}` is given for both `{first}` and `{}`", own.names[0]);
                    return refuse(contract(message, "one weight for two"));
                }
            }
        }
        Ok(())
    }

    /// Every weight that the module computes with is one of those that the archive computes with.
    fn none_is_lost(&self, own: &[Own], sources: &[Option<Source>], needed: &BTreeSet<ValueId>) -> Result<(), Refusal> {
        let pairs = || own.iter().zip(sources).filter_map(|(own, source)| Some((own, source.as_ref()?)));
        let used: BTreeSet<ValueId> =
            pairs().filter(|(own, _)| self.reads(own.value)).flat_map(|(_, source)| source.values.clone()).collect();
        let lost: Vec<ValueId> = needed.difference(&used).copied().collect();
        let Some(first) = lost.first() else { return Ok(()) };
        let names = listed(lost.iter().map(|value| self.weight(*value)));
        refuse(match pairs().find(|(_, source)| source.values.contains(first)) {
            Some((own, _)) => {
                let message = format!("`{}` never reads its `{}`: {names} would be lost", self.name, own.names[0]);
                contract(message, "a weight would be lost")
            }
            None => contract(format!("`{}` has no weight for {names}", self.name), "a weight would be lost")
                .note(format!("`{}` computes with it", self.path)),
        })
    }

    fn reads(&self, value: ValueId) -> bool {
        is_read(&self.archive.graph, value)
    }

    /// The path of a weight of the model.
    fn weight(&self, value: ValueId) -> String {
        let Graph { values, .. } = &self.bound;
        match values[value.0 as usize].def {
            Def::Parameter(id) => self.state.model.parameter(id).names[0].clone(),
            Def::Buffer(id) => self.state.model.buffers[id.0 as usize].name.clone(),
            _ => values[value.0 as usize].name.clone(),
        }
    }
}
