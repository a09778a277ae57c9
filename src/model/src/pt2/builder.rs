//! The graph while it is being imported.

use super::ImportError;
use super::nodes::Names;
use super::tensors::Tensors;
use crate::graph::{Def, Node, Type, Value, ValueId};
use crate::model::ParameterId;
use crate::sym::Size;
use std::collections::HashMap;

/// The graph so far. Values stand in this order: one per parameter, one per buffer, the inputs, then results.
#[derive(Default)]
pub struct Builder<'a> {
    pub values: Vec<Value<Size>>,
    pub nodes: Vec<Node<Size>>,
    pub inputs: Vec<ValueId>,
    pub names: Names<'a>,
}

impl<'a> Builder<'a> {
    /// Values of parameters and buffers; all placeholders of a tie are one value.
    pub fn tensors(&mut self, tensors: &Tensors<'a>) -> Result<(), ImportError> {
        let ty = |dtype, shape: &[i64]| Type { dtype, shape: shape.iter().map(|size| Size::Const(*size)).collect() };
        let mut placeholders: HashMap<Def, &str> = HashMap::new();
        for (name, id) in &tensors.parameter_values {
            placeholders.entry(Def::Parameter(*id)).or_insert(name);
            self.names.define(name, ValueId(id.0))?;
        }
        for (index, parameter) in tensors.parameters.iter().enumerate() {
            let def = Def::Parameter(ParameterId(index as u32));
            let name = match placeholders.get(&def) {
                Some(name) => name.to_string(),
                // Only the table of weights has it; the graph cannot read it.
                None => parameter.names.join("="),
            };
            self.values.push(Value { name, ty: ty(parameter.dtype, &parameter.shape), def });
        }
        for (name, id) in &tensors.buffer_values {
            let buffer = &tensors.buffers[id.0 as usize];
            self.value(name, ty(buffer.dtype, &buffer.shape), Def::Buffer(*id))?;
        }
        Ok(())
    }

    pub fn input(&mut self, name: &'a str, ty: Type<Size>) -> Result<(), ImportError> {
        let def = Def::Input(self.inputs.len() as u32);
        let id = self.value(name, ty, def)?;
        self.inputs.push(id);
        Ok(())
    }

    pub fn value(&mut self, name: &'a str, ty: Type<Size>, def: Def) -> Result<ValueId, ImportError> {
        let id = ValueId(self.values.len() as u32);
        self.names.define(name, id)?;
        self.values.push(Value { name: name.to_string(), ty, def });
        Ok(id)
    }
}
