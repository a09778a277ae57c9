//! The model: module tree and operator graph, and the importers that make them from bytes.
//!
//! Owns [`Model`] (what an archive says, with symbolic sizes), [`Graph`] (operators in SSA form), the operator table's
//! names, and binding of sizes. It must know nothing of schedules, layouts or libtorch, and does no I/O: an importer
//! takes the archive's bytes and touches only its directory and its JSON. Read [`Graph`] first, then [`Model`].

mod bind;
mod fingerprint;
mod graph;
pub mod inspect;
mod listing;
mod model;
mod pt2;
pub mod regions;
pub mod sym;
mod validate;

pub use bind::{BindError, InputSizes, Legal, LegalSizes, bind, bind_graph, legal_sizes};
pub use graph::{Arg, Def, Graph, Node, NodeId, Op, Origin, Type, Value, ValueId};
pub use listing::{Listing, typed};
pub use model::{
    Buffer, BufferId, Input, Model, Module, ModuleId, Parameter, ParameterId, Scope, ScopeId, SourceId, SourceLine,
    Stored,
};
pub use pt2::{ImportError, Site, import, import_module};
pub use validate::{Extent, Fault, validate};
