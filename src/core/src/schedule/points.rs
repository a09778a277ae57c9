//! Points on a model: values as they cross the border of a module, and gradients of parameters.
//!
//! Ports are numbered as [`slapo_model::regions`] numbers them, masks and indices included; a point without a number is
//! the one port that a gradient flows through. Everything here is a question to the [`Model`]. Read [`Point`] first.

use super::select::Place;
use slapo_model::regions::{Regions, calls};
use slapo_model::sym::Size;
use slapo_model::{Def, Graph, InputSizes, Model, ModuleId, Type, ValueId, bind};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A use of a value: on the border of a module, or of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Point {
    pub of: Place,
    pub port: Port,
    /// The gradient there instead of the value.
    pub is_gradient: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// A value that enters the module, in order of first use.
    Input(u32),
    /// A value that leaves it, in order of definition.
    Output(u32),
    /// A parameter itself.
    Value,
}

/// Why a point does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoPort {
    /// The module is never called.
    NeverRuns,
    /// No value that a gradient flows through crosses the border. Whether all that do are whole numbers.
    None { are_whole: bool },
    /// Several do: their numbers and values.
    Several(Vec<(u32, ValueId)>),
    /// There are only so many.
    Number(Vec<(u32, ValueId)>),
    /// No value of that name; those there are.
    Name(Vec<String>),
}

/// How a port is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortName<'a> {
    Only,
    Number(u32),
    Named(&'a str),
}

/// Answers about points that are worth keeping for a whole schedule.
pub struct Ports<'m> {
    pub model: &'m Model,
    regions: OnceCell<Regions<'m, Size>>,
    /// By value: floating and dependent on a parameter.
    differentiable: OnceCell<Vec<bool>>,
    borders: RefCell<BTreeMap<ModuleId, Option<Rc<Border>>>>,
    bound: RefCell<Option<(InputSizes, Rc<Graph>)>>,
}

/// What crosses the border of a module's first call.
struct Border {
    inputs: Vec<ValueId>,
    outputs: Vec<ValueId>,
}

impl Border {
    fn side(&self, is_input: bool) -> &[ValueId] {
        if is_input { &self.inputs } else { &self.outputs }
    }
}

impl<'m> Ports<'m> {
    pub fn new(model: &'m Model) -> Ports<'m> {
        Ports {
            model,
            regions: OnceCell::new(),
            differentiable: OnceCell::new(),
            borders: RefCell::default(),
            bound: RefCell::default(),
        }
    }

    /// A port on the border of a module, in its first call.
    pub fn find(&self, module: ModuleId, is_input: bool, name: PortName) -> Result<Port, NoPort> {
        let border = self.border(module).ok_or(NoPort::NeverRuns)?;
        let values = border.side(is_input);
        let graph = &self.model.graph;
        let at = match name {
            PortName::Number(at) if (at as usize) < values.len() => at as usize,
            PortName::Number(_) => return Err(NoPort::Number((0..).zip(values.iter().copied()).collect())),
            PortName::Named(name) => {
                let shown = || values.iter().map(|id| graph.value(*id).name.clone()).collect();
                let at = values.iter().position(|id| graph.value(*id).name == name);
                at.ok_or_else(|| NoPort::Name(shown()))?
            }
            PortName::Only => {
                let flows = |at: &usize| self.is_differentiable(values[*at]);
                let open: Vec<usize> = (0..values.len()).filter(flows).collect();
                match open.as_slice() {
                    [] => {
                        let are_whole = !values.is_empty() && values.iter().all(|id| !graph.ty(*id).dtype.is_float());
                        return Err(NoPort::None { are_whole });
                    }
                    [one] => *one,
                    several => {
                        return Err(NoPort::Several(several.iter().map(|at| (*at as u32, values[*at])).collect()));
                    }
                }
            }
        };
        Ok(if is_input { Port::Input(at as u32) } else { Port::Output(at as u32) })
    }

    /// The value at a point on a module's border.
    pub fn value(&self, point: &Point) -> Option<ValueId> {
        let border = self.border(point.of.module()?)?;
        match point.port {
            Port::Input(at) => border.inputs.get(at as usize).copied(),
            Port::Output(at) => border.outputs.get(at as usize).copied(),
            Port::Value => None,
        }
    }

    /// The point's number among the values of its side that a gradient flows through.
    pub fn differentiable_number(&self, point: &Point) -> Option<u32> {
        let border = self.border(point.of.module()?)?;
        let (at, values) = match point.port {
            Port::Input(at) => (at as usize, border.side(true)),
            Port::Output(at) => (at as usize, border.side(false)),
            Port::Value => return None,
        };
        let is_there = values.get(at).is_some_and(|value| self.is_differentiable(*value));
        is_there.then(|| values[..at].iter().filter(|value| self.is_differentiable(**value)).count() as u32)
    }

    /// Whether a gradient flows through a value: it is a floating number and depends on a parameter.
    pub fn is_differentiable(&self, value: ValueId) -> bool {
        self.differentiable.get_or_init(|| differentiable(self.model))[value.0 as usize]
    }

    /// Element type and shape of a value under the sizes of the inputs, if those fit the model.
    pub fn bound_type(&self, value: ValueId, sizes: InputSizes) -> Option<Type> {
        let known = self.bound.borrow().as_ref().filter(|(of, _)| *of == sizes).map(|(_, graph)| graph.clone());
        let graph = match known {
            Some(graph) => graph,
            None => {
                let graph = Rc::new(bind(self.model, &sizes).ok()?);
                *self.bound.borrow_mut() = Some((sizes, graph.clone()));
                graph
            }
        };
        Some(graph.ty(value).clone())
    }

    /// `transformer.h.0.mlp.c_proj.output()`; the port has a number where it is not the only one.
    pub fn path(&self, point: &Point) -> String {
        let of = point.of.path(self.model);
        let only = |is_input: bool| point.of.module().and_then(|id| self.find(id, is_input, PortName::Only).ok());
        let word = match point.port {
            Port::Input(_) if only(true) == Some(point.port) => "input()".to_string(),
            Port::Output(_) if only(false) == Some(point.port) => "output()".to_string(),
            Port::Input(at) => format!("input({at})"),
            Port::Output(at) => format!("output({at})"),
            Port::Value => String::new(),
        };
        let words = [of.as_str(), word.as_str(), if point.is_gradient { "grad()" } else { "" }];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(".")
    }

    /// The point of a path as [`Ports::path`] writes it.
    pub fn at(&self, path: &str) -> Option<Point> {
        let (path, is_gradient) = match path.strip_suffix(".grad()") {
            Some(path) => (path, true),
            None => (path, false),
        };
        let Some(inner) = path.strip_suffix(')') else {
            let of = Place::at(self.model, path).filter(|_| is_gradient)?;
            let is_parameter = matches!(of, Place::Parameter { .. });
            return is_parameter.then_some(Point { of, port: Port::Value, is_gradient });
        };
        let (front, number) = inner.rsplit_once('(')?;
        let (of, word) = front.rsplit_once('.').unwrap_or(("", front));
        let is_input = word == "input";
        if !is_input && word != "output" {
            return None;
        }
        let name = match number {
            "" => PortName::Only,
            number => PortName::Number(number.parse().ok()?),
        };
        let module = self.model.find(of)?;
        let port = self.find(module, is_input, name).ok()?;
        Some(Point { of: Place::Module(module), port, is_gradient })
    }

    fn border(&self, module: ModuleId) -> Option<Rc<Border>> {
        let mut borders = self.borders.borrow_mut();
        let known = borders.entry(module).or_insert_with(|| {
            let regions = self.regions.get_or_init(|| Regions::new(&self.model.graph, self.model));
            let region = match calls(self.model, module).first() {
                Some(scope) => regions.call(*scope),
                None => regions.module(module),
            };
            let border = Border { inputs: region.live_in, outputs: region.live_out };
            (!region.nodes.is_empty()).then(|| Rc::new(border))
        });
        known.clone()
    }
}

/// Values that a gradient flows through.
fn differentiable(model: &Model) -> Vec<bool> {
    let graph = &model.graph;
    let mut flows: Vec<bool> = graph.values.iter().map(|value| matches!(value.def, Def::Parameter(_))).collect();
    for node in &graph.nodes {
        if node.reads().any(|id| flows[id.0 as usize]) {
            for out in node.outs.iter().flatten() {
                flows[out.0 as usize] = graph.ty(*out).dtype.is_float();
            }
        }
    }
    flows
}
