//! Parameters and buffers: names, ties, and where their values lie in the file.
//!
//! Two names are one parameter if they are the same box of the same storage. The first name in the model's order owns
//! it: for GPT-2 that is `transformer.wte.weight`, although the graph reads `lm_head.weight`.

use super::ImportError;
use super::archive::Archive;
use super::schema::{InputSpec, Payload, Payloads, TensorMeta, Text, dtype, dtype_name};
use super::sizes::{constant, constants};
use super::tree::Tree;
use crate::model::{Buffer, BufferId, ModuleId, Parameter, ParameterId, Stored};
use slapo_program::DType;
use std::collections::{BTreeMap, HashMap};

/// The tables of an archive that say where tensors lie.
pub struct Tables<'a> {
    pub archive: &'a Archive<'a>,
    pub weights: &'a Payloads<'a>,
    pub constants: &'a Payloads<'a>,
    pub metas: &'a HashMap<Text<'a>, TensorMeta<'a>>,
}

/// Tensors that the graph reads, by the names of their placeholders.
#[derive(Default)]
pub struct Tensors<'a> {
    pub parameters: Vec<Parameter>,
    pub buffers: Vec<Buffer>,
    pub parameter_values: Vec<(&'a str, ParameterId)>,
    pub buffer_values: Vec<(&'a str, BufferId)>,
    /// Names whose values the archive does not hold.
    missing: Vec<String>,
}

/// The same box of the same storage.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    entry: String,
    offset: i64,
    dtype: DType,
    shape: Vec<i64>,
    strides: Vec<i64>,
}

/// A name of a parameter.
struct Named<'a> {
    name: &'a str,
    /// Absent for names that only the weights' table has.
    placeholder: Option<&'a str>,
    module: ModuleId,
    trainable: bool,
    place: Place,
    stored: Option<Stored>,
}

impl<'a> Tensors<'a> {
    /// Reads all of them; modules learn their own parameters and buffers.
    pub fn read(
        inputs: &'a [InputSpec<'a>],
        tables: &Tables<'a>,
        tree: &mut Tree,
        errors: &mut Vec<ImportError>,
    ) -> Tensors<'a> {
        let mut tensors = Tensors::default();
        let named = tensors.named(inputs, tables, tree, errors);
        tensors.unify(named, tree);
        tensors.read_buffers(inputs, tables, tree, errors);
        if !tensors.missing.is_empty() {
            errors.push(ImportError::MissingWeights { names: std::mem::take(&mut tensors.missing) });
        }
        tensors
    }

    /// Every name of a parameter, in the model's order.
    fn named(
        &mut self,
        inputs: &'a [InputSpec<'a>],
        tables: &Tables<'a>,
        tree: &Tree,
        errors: &mut Vec<ImportError>,
    ) -> Vec<Named<'a>> {
        let mut names: Vec<(&'a str, Option<&'a str>)> = Vec::new();
        for input in inputs {
            if let InputSpec::Parameter { arg, parameter_name } = input {
                names.push((parameter_name, Some(&arg.name)));
            }
        }
        let placed: BTreeMap<&str, ()> = names.iter().map(|(name, _)| (*name, ())).collect();
        for (name, payload) in &tables.weights.config {
            if payload.is_param && !placed.contains_key(&**name) {
                names.push((name, None));
            }
        }
        let mut named = Vec::with_capacity(names.len());
        for (name, placeholder) in names {
            match self.parameter(name, placeholder, tables, tree) {
                Ok(parameter) => named.push(parameter),
                Err(error) => errors.push(error),
            }
        }
        // Stable: names of one module keep the order of the archive.
        named.sort_by_key(|parameter| parameter.module);
        errors.extend(overlaps(&named));
        named
    }

    fn parameter(
        &mut self,
        name: &'a str,
        placeholder: Option<&'a str>,
        tables: &Tables<'a>,
        tree: &Tree,
    ) -> Result<Named<'a>, ImportError> {
        let payload = tables.weights.config.get(name);
        let meta = placeholder.and_then(|placeholder| tables.metas.get(placeholder));
        let (place, stored) = self.locate(name, "data/weights", payload, meta, tables.archive)?;
        let requires_grad = |meta: Option<&TensorMeta>| meta.is_some_and(|m| m.requires_grad);
        Ok(Named {
            name,
            placeholder,
            module: owner(name, tree).unwrap_or_default(),
            trainable: requires_grad(meta) || requires_grad(payload.and_then(|p| p.tensor_meta.as_ref())),
            place,
            stored,
        })
    }

    /// Type and place of a tensor. Values that are not there are noted, and everything else is read on.
    fn locate(
        &mut self,
        name: &str,
        folder: &str,
        payload: Option<&Payload>,
        placeholder: Option<&TensorMeta>,
        archive: &Archive,
    ) -> Result<(Place, Option<Stored>), ImportError> {
        if payload.is_some_and(|payload| payload.use_pickle) {
            return Err(ImportError::unsupported(format!("`{name}` is stored as a pickle, which is not supported")));
        }
        let meta = payload
            .and_then(|payload| payload.tensor_meta.as_ref())
            .or(placeholder)
            .ok_or_else(|| ImportError::malformed(format!("nothing says what `{name}` is")))?;
        let path = payload.map(|payload| format!("{folder}/{}", &*payload.path_name));
        let place = place(name, path.clone().unwrap_or_default(), meta)?;
        if let Some(placeholder) = placeholder
            && (constants(&placeholder.sizes).as_ref() != Some(&place.shape)
                || dtype(placeholder.dtype) != Some(place.dtype))
        {
            return Err(ImportError::malformed(format!(
                "`{name}` has one shape in the graph and another in the table of weights"
            )));
        }
        let range = match &path {
            Some(path) => archive.range(path)?,
            None => None,
        };
        let Some(range) = range else {
            self.missing.push(name.to_string());
            return Ok((place, None));
        };
        let (start, needed) = place
            .start()
            .zip(place.end())
            .ok_or_else(|| ImportError::malformed(format!("`{name}` is no box of its storage")))?;
        let found = range.end - range.start;
        if needed > found {
            return Err(ImportError::ShortWeight { name: name.to_string(), needed, found });
        }
        let stored = Stored { offset: range.start + start, strides: place.strides.clone() };
        Ok((place, Some(stored)))
    }

    /// Makes one parameter of all names of one place.
    fn unify(&mut self, named: Vec<Named<'a>>, tree: &mut Tree) {
        let mut known: BTreeMap<Place, ParameterId> = BTreeMap::new();
        for one in named {
            let next = ParameterId(self.parameters.len() as u32);
            // Without an entry there is nothing to share.
            let id = match one.place.entry.is_empty() {
                true => next,
                false => *known.entry(one.place.clone()).or_insert(next),
            };
            if id == next {
                self.parameters.push(Parameter {
                    names: Vec::new(),
                    dtype: one.place.dtype,
                    shape: one.place.shape,
                    trainable: false,
                    module: one.module,
                    stored: one.stored,
                });
            }
            let parameter = &mut self.parameters[id.0 as usize];
            parameter.names.push(one.name.to_string());
            parameter.trainable |= one.trainable;
            if let Some(placeholder) = one.placeholder {
                self.parameter_values.push((placeholder, id));
            }
            tree.modules[one.module.0 as usize].parameters.push((local(one.name), id));
        }
    }

    fn read_buffers(
        &mut self,
        inputs: &'a [InputSpec<'a>],
        tables: &Tables<'a>,
        tree: &mut Tree,
        errors: &mut Vec<ImportError>,
    ) {
        for input in inputs {
            let (placeholder, name, persistent, named) = match input {
                InputSpec::Buffer { arg, buffer_name, persistent } => (&arg.name, buffer_name, *persistent, true),
                InputSpec::TensorConstant { arg, tensor_constant_name } => {
                    (&arg.name, tensor_constant_name, false, false)
                }
                _ => continue,
            };
            let (folder, payload) = match tables.weights.config.get(&**name) {
                Some(payload) => ("data/weights", Some(payload)),
                None => ("data/constants", tables.constants.config.get(&**name)),
            };
            let meta = tables.metas.get(&**placeholder);
            let (place, stored) = match self.locate(name, folder, payload, meta, tables.archive) {
                Ok(located) => located,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            let id = BufferId(self.buffers.len() as u32);
            // A constant that the graph captured belongs to a module only if its name says so.
            let module = owner(name, tree).filter(|_| named || name.contains('.'));
            if let Some(module) = module {
                tree.modules[module.0 as usize].buffers.push((local(name), id));
            }
            self.buffers.push(Buffer {
                name: name.to_string(),
                dtype: place.dtype,
                shape: place.shape,
                persistent,
                module,
                stored,
            });
            self.buffer_values.push((placeholder, id));
        }
    }
}

impl Place {
    /// Bytes of the entry before the first element; `None` if the numbers make no sense, here and below.
    fn start(&self) -> Option<u64> {
        u64::try_from(self.offset).ok()?.checked_mul(self.dtype.bytes())
    }

    /// Bytes of the entry up to the end of the last element.
    fn end(&self) -> Option<u64> {
        if self.shape.contains(&0) {
            return self.start();
        }
        let mut last = self.offset;
        for (size, stride) in self.shape.iter().zip(&self.strides) {
            last = last.checked_add(size.checked_sub(1)?.checked_mul(*stride)?)?;
        }
        u64::try_from(last).ok()?.checked_add(1)?.checked_mul(self.dtype.bytes())
    }
}

fn place(name: &str, entry: String, meta: &TensorMeta) -> Result<Place, ImportError> {
    const STRIDED: u32 = 7;
    if meta.layout != STRIDED {
        return Err(ImportError::unsupported(format!("`{name}` is a sparse tensor, which is not supported")));
    }
    let dtype = dtype(meta.dtype)
        .ok_or_else(|| ImportError::DType { tensor: name.to_string(), dtype: dtype_name(meta.dtype) })?;
    let numbers = || {
        let shape = constants(&meta.sizes)?;
        let strides = constants(&meta.strides)?;
        let offset = constant(&meta.storage_offset)?;
        let all = [shape.as_slice(), &strides, &[offset]].concat();
        let sound = shape.len() == strides.len() && all.iter().all(|n| *n >= 0);
        sound.then_some((shape, strides, offset))
    };
    let (shape, strides, offset) =
        numbers().ok_or_else(|| ImportError::malformed(format!("`{name}` has no fixed box of its storage")))?;
    Ok(Place { entry, offset, dtype, shape, strides })
}

/// Parameters that share storage without being the same box: training would pull them apart.
fn overlaps(named: &[Named]) -> Vec<ImportError> {
    let mut boxes: BTreeMap<&Place, &str> = BTreeMap::new();
    for one in named.iter().filter(|one| !one.place.entry.is_empty()) {
        boxes.entry(&one.place).or_insert(one.name);
    }
    let mut errors = Vec::new();
    let mut reach: Option<(&str, u64, &str)> = None;
    for (place, name) in boxes {
        let (Some(start), Some(end)) = (place.start(), place.end()) else {
            continue;
        };
        match reach {
            Some((entry, until, other)) if entry == place.entry && start < until => {
                errors.push(ImportError::unsupported(format!(
                    "`{name}` and `{other}` share storage but differ in shape or place, which is not supported"
                )));
            }
            _ => {}
        }
        if reach.is_none_or(|(entry, until, _)| entry != place.entry || end > until) {
            reach = Some((&place.entry, end, name));
        }
    }
    errors
}

/// The module that a dotted name stands in.
fn owner(name: &str, tree: &Tree) -> Option<ModuleId> {
    tree.find(name.rsplit_once('.').map_or("", |(module, _)| module))
}

fn local(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_string()
}
