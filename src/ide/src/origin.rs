//! Where in the model's own source something of a schedule is computed.

use slapo_core::schedule::Place;
use slapo_model::{Def, Model, ModuleId, Node, SourceId, SourceLine};

/// The first line that a module runs itself, or else the first in the file of its class that runs inside of it; of a
/// parameter the first line that reads it.
pub fn line(model: &Model, place: Place) -> Option<&SourceLine> {
    let source = |id: SourceId| model.sources.get(id.0 as usize);
    let first = |fits: &dyn Fn(&Node<_>, &SourceLine) -> bool| {
        let lines = model.graph.nodes.iter().filter_map(|node| Some((node, source(node.origin.source?)?)));
        lines.filter(|(node, line)| fits(node, line)).map(|(_, line)| line).next()
    };
    let of = |node: &Node<_>| model.scopes[node.origin.scope.0 as usize].module;
    let reads = |node: &Node<_>, wanted: Def| node.reads().any(|value| model.graph.value(value).def == wanted);
    match place {
        Place::Module(id) => first(&|node, _| of(node) == id).or_else(|| {
            let file = file_of(&model.module(id).class)?;
            first(&|node, line| line.file == file && is_below(model, of(node), id))
        }),
        Place::Parameter { id, .. } => first(&|node, _| reads(node, Def::Parameter(id))),
        Place::Buffer { id, .. } => first(&|node, _| reads(node, Def::Buffer(id))),
    }
}

/// `models.gpt2.GPT2Block` is declared in `models/gpt2.py`.
fn file_of(class: &str) -> Option<String> {
    class.rsplit_once('.').map(|(module, _)| module.replace('.', "/") + ".py")
}

fn is_below(model: &Model, module: ModuleId, above: ModuleId) -> bool {
    std::iter::successors(Some(module), |id| model.module(*id).parent).any(|id| id == above)
}
