//! Element types and shapes of ports, and the archive's sizes in those of the model.

use super::ports::Bound;
use super::{Replacing, contract, refuse};
use crate::primitives::Refusal;
use slapo_model::sym::{Size, Symbol, Values};
use slapo_model::{Arg, Type, ValueId};
use std::collections::BTreeMap;

/// What the archive's symbols are: expressions of the model's, and their values at the sizes of the step.
#[derive(Default)]
pub struct Symbols {
    sizes: BTreeMap<Symbol, Size>,
    values: Values,
}

impl Replacing<'_, '_> {
    /// Holds the types of bound ports against each other.
    pub(super) fn symbols(&self, bound: &Bound) -> Result<Symbols, Refusal> {
        let (archive, graph) = (&self.archive.graph, self.graph());
        let mut symbols = Symbols::default();
        for (input, value) in archive.inputs.iter().zip(&bound.inputs) {
            let shapes = archive.ty(*input).shape.iter().zip(&graph.ty(*value).shape).zip(&self.bound.ty(*value).shape);
            for ((own, size), at) in shapes {
                if let Size::Symbol(symbol) = own {
                    symbols.sizes.entry(symbol.clone()).or_insert_with(|| size.clone());
                    symbols.values.entry(symbol.clone()).or_insert(*at);
                }
            }
        }
        let inputs = archive.inputs.iter().copied().zip(bound.inputs.iter().copied());
        for (own, value) in inputs.chain(bound.outputs.iter().copied()) {
            self.same_type(own, value, &symbols)?;
        }
        for (symbol, range) in &self.archive.symbols {
            // PyTorch's lower bound of 2 is an artefact of exporting.
            let range = slapo_model::sym::Range { min: range.min.filter(|min| *min > 2), max: range.max };
            if let Some(size) = symbols.values.get(symbol).filter(|size| !range.contains(**size)) {
                let message = format!("`{}` takes no size of {size} where `{}` has it", self.name, self.path);
                return refuse(contract(message, "out of its range").help(format!("its `{symbol}` is in {range}")));
            }
        }
        Ok(symbols)
    }

    fn same_type(&self, own: ValueId, value: ValueId, symbols: &Symbols) -> Result<(), Refusal> {
        let (own, ty) = (self.archive.graph.value(own), self.bound.ty(value));
        let shape: Vec<Option<i64>> = own.ty.shape.iter().map(|size| size.eval(&symbols.values)).collect();
        let fits = own.ty.dtype == ty.dtype && shape == ty.shape.iter().copied().map(Some).collect::<Vec<_>>();
        if fits {
            return Ok(());
        }
        let shown = own.ty.shape.iter().zip(&shape).map(|(size, at)| at.map_or(size.to_string(), |at| at.to_string()));
        let message = format!(
            "`{}` of `{}` is {}[{}], `{}` of `{}` is {}",
            own.name,
            self.name,
            own.ty.dtype.name(),
            shown.collect::<Vec<_>>().join(", "),
            self.bound.value(value).name,
            self.path,
            typed(ty),
        );
        refuse(contract(message, "types do not fit"))
    }

    /// A type of the archive in the model's sizes.
    pub(super) fn typed(&self, ty: &Type<Size>, symbols: &Symbols) -> Result<Type<Size>, Refusal> {
        let shape = ty.shape.iter().map(|size| self.size(size, symbols)).collect::<Result<_, _>>()?;
        Ok(Type { dtype: ty.dtype, shape })
    }

    pub(super) fn sized(&self, arg: &Arg<Size>, symbols: &Symbols) -> Result<Arg<Size>, Refusal> {
        Ok(match arg {
            Arg::Int(size) => Arg::Int(self.size(size, symbols)?),
            Arg::Ints(sizes) => Arg::Ints(sizes.iter().map(|size| self.size(size, symbols)).collect::<Result<_, _>>()?),
            other => other.clone(),
        })
    }

    fn size(&self, size: &Size, symbols: &Symbols) -> Result<Size, Refusal> {
        size.substitute(&symbols.sizes).ok_or_else(|| {
            let message = format!("no input of `{}` decides its size `{size}`", self.name);
            let problem = contract(message, "a size is open");
            problem.help("export it with fixed sizes, or with inputs that have this size").into()
        })
    }
}

/// `f32[4, 7, 20]`
pub fn typed(ty: &Type) -> String {
    let sizes: Vec<String> = ty.shape.iter().map(ToString::to_string).collect();
    format!("{}[{}]", ty.dtype.name(), sizes.join(", "))
}
