//! From arguments to something compiled, with everything said about it on the way: what `check`, `apply` and `train` share.

use crate::args::{self, Compile, FloatType, Source};
use crate::failure::{Exit, Failure, Result};
use crate::levels::Levels;
use crate::load::{self, Loaded, Ready};
use crate::output::Output;
use slapo_core::compile::{Compiled, Effects, Options, compile};
use slapo_core::lower::{OptimizerKind, OptimizerSettings};
use slapo_core::passes::canonical;
use slapo_core::schedule;
use slapo_program::DType;
use slapo_syntax::{Code, Diagnostic};

/// How far preparation came. Diagnostics are shown already.
pub enum Prepared {
    /// There is nothing to go on with.
    Stopped(Exit),
    /// No model is named: names and types are right.
    WithoutModel(Box<Loaded>),
    Compiled(Box<Ready>, Box<Compiled>),
}

/// What was found, and everything that is to be said about it.
pub struct Examined {
    pub diagnostics: Vec<Diagnostic>,
    found: Found,
}

enum Found {
    Stopped(Box<Loaded>, Exit),
    WithoutModel(Box<Loaded>),
    Compiled(Box<Ready>, Box<Compiled>),
}

impl Examined {
    pub fn loaded(&self) -> &Loaded {
        match &self.found {
            Found::Stopped(loaded, _) | Found::WithoutModel(loaded) => loaded,
            Found::Compiled(ready, _) => &ready.loaded,
        }
    }

    pub fn is_wrong(&self) -> bool {
        matches!(self.found, Found::Stopped(..))
    }

    /// Shows the diagnostics.
    pub fn show(self, out: &Output) -> Result<Prepared> {
        out.diagnostics(&self.loaded().files, &self.diagnostics)?;
        Ok(match self.found {
            Found::Stopped(_, exit) => Prepared::Stopped(exit),
            Found::WithoutModel(loaded) => Prepared::WithoutModel(loaded),
            Found::Compiled(ready, compiled) => Prepared::Compiled(ready, compiled),
        })
    }
}

pub fn prepare(
    source: &Source,
    until: Option<u32>,
    options: impl Fn(&Loaded) -> Options,
    out: &Output,
) -> Result<Prepared> {
    let levels = Levels::new(&source.levels)?;
    examine(load::load(source, until)?, &levels, until, options).show(out)
}

/// Compiles what was loaded, and collects what there is to say. `until` is what it was loaded with.
pub fn examine(loaded: Loaded, levels: &Levels, until: Option<u32>, options: impl Fn(&Loaded) -> Options) -> Examined {
    let named = |diagnostic| load::with_file(diagnostic, &loaded.name);
    let mut diagnostics: Vec<Diagnostic> = loaded.checked.diagnostics.iter().cloned().map(named).collect();
    diagnostics.extend(loaded.broken.iter().cloned());
    let model_is_broken = !loaded.broken.is_empty();
    // Names that only left out statements read are not unused.
    if !model_is_broken && until.is_none() {
        diagnostics.extend(loaded.checked.lints.iter().cloned());
    }
    let mut diagnostics = levels.applied(diagnostics);
    if model_is_broken || diagnostics.iter().any(Diagnostic::is_error) {
        let exit = if model_is_broken { Exit::NotDone } else { Exit::Findings };
        return Examined { diagnostics, found: Found::Stopped(Box::new(loaded), exit) };
    }
    let options = options(&loaded);
    let ready = match Ready::new(loaded) {
        Ok(ready) => ready,
        Err(loaded) => return Examined { diagnostics, found: Found::WithoutModel(loaded) },
    };
    match compile_with(&ready, &ready.loaded.checked.effects, &options) {
        Ok(compiled) => Examined { diagnostics, found: Found::Compiled(Box::new(ready), Box::new(compiled)) },
        Err(faults) => {
            let Ready { loaded, archive, .. } = ready;
            let faults = schedule::fault_diagnostics(&faults, &archive.model, &loaded.checked);
            diagnostics.extend(faults.into_iter().map(|fault| load::with_file(fault, &loaded.name)));
            Examined { diagnostics, found: Found::Stopped(Box::new(loaded), Exit::Findings) }
        }
    }
}

/// Compiles the model under other effects than the schedule's.
pub fn compile_with(
    ready: &Ready,
    effects: &Effects,
    options: &Options,
) -> std::result::Result<Compiled, Vec<slapo_core::compile::Fault>> {
    compile(&ready.archive.model, &ready.sizes, effects, options)
}

pub fn no_model(loaded: &Loaded) -> Box<Failure> {
    Failure::not_done(Code::NoModel, format!("`{}` names no model", loaded.name))
        .help("write `model \"gpt2.pt2\"` into it, or give `--model gpt2.pt2`")
}

/// What the flags choose.
pub fn options(flags: &Compile, loaded: &Loaded) -> Options {
    Options {
        model: canonical::Options { no_dropout: flags.no_dropout, dtype: flags.dtype.map(dtype) },
        optimizer: optimizer(flags),
        seed: flags.seed,
        schedule: loaded.fingerprint.clone(),
    }
}

pub fn optimizer(flags: &Compile) -> OptimizerSettings {
    let (kind, decay) = match flags.optimizer {
        args::Optimizer::AdamW => (OptimizerKind::AdamW, 0.01),
        args::Optimizer::Sgd => (OptimizerKind::Sgd, 0.0),
    };
    OptimizerSettings {
        kind,
        lr: flags.lr,
        betas: (flags.betas.0, flags.betas.1),
        eps: flags.eps,
        weight_decay: flags.weight_decay.unwrap_or(decay),
        clip: flags.clip,
    }
}

fn dtype(chosen: FloatType) -> DType {
    match chosen {
        FloatType::F64 => DType::F64,
        FloatType::F32 => DType::F32,
        FloatType::BF16 => DType::BF16,
        FloatType::F16 => DType::F16,
    }
}
