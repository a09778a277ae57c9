//! [`Inspect`] as text.
//!
//! One line a module: path, class, elements below, own tensors. Equal neighbours among numbered modules are one line,
//! `h.[0..12]`, with one copy of what is below.

use super::{Inspect, ModuleInfo, OperatorCount, Port, TensorInfo};
use std::fmt::Write;

const WIDTH: usize = 110;

/// The whole model.
pub fn render(inspect: &Inspect) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = summary(&mut text, inspect);
    text.push('\n');
    text.push_str(&tree(&inspect.root));
    text.push('\n');
    text.push_str(&operators(inspect.totals.nodes, &inspect.operators));
    text
}

/// The ports of one module, as `input(n)` and `output(n)` count them; `None` if there is no such module.
pub fn render_ports(inspect: &Inspect, path: &str) -> Option<String> {
    let mut module = &inspect.root;
    while module.path != path {
        module = module.children.iter().find(|child| {
            let rest = path.strip_prefix(child.path.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })?;
    }
    let mut text = String::new();
    let _ = ports(&mut text, module);
    Some(text)
}

fn ports(text: &mut String, module: &ModuleInfo) -> std::fmt::Result {
    let class = class(module);
    let colon = if class.is_empty() { "" } else { ": " };
    writeln!(text, "{}{colon}{class}", or(&module.path, "the model"))?;
    if module.calls.is_empty() {
        writeln!(text, "  never called")?;
    }
    for (number, call) in module.calls.iter().enumerate() {
        if module.calls.len() > 1 {
            writeln!(text, "  call {number}")?;
        }
        for (kind, ports) in [("input", &call.inputs), ("output", &call.outputs)] {
            for (index, port) in ports.iter().enumerate() {
                writeln!(text, "  {kind}({index})  {}  {}", port.ty(), port.name)?;
            }
        }
    }
    Ok(())
}

fn summary(text: &mut String, inspect: &Inspect) -> std::fmt::Result {
    let totals = &inspect.totals;
    writeln!(text, "model       {}", or(&inspect.root.class, "(unnamed)"))?;
    writeln!(text, "            fingerprint {}", inspect.fingerprint)?;
    writeln!(
        text,
        "parameters  {} in {} tensors, {}{}",
        grouped(totals.elements),
        totals.parameters,
        bytes(totals.bytes),
        match totals.elements - totals.trainable_elements {
            0 => String::new(),
            frozen => format!(", {} frozen", grouped(frozen)),
        }
    )?;
    for tie in &inspect.ties {
        writeln!(text, "            tied: {}", tie.join(" = "))?;
    }
    list(text, "inputs", &inspect.inputs, |port| match port.used {
        true => "",
        false => "  (not used)",
    })?;
    writeln!(text, "            batch {}, seq {}", inspect.batch, inspect.seq)?;
    list(text, "outputs", &inspect.outputs, |port| match port.name == inspect.loss {
        true => "  (the loss)",
        false => "",
    })?;
    for name in &inspect.mutations {
        writeln!(text, "            changes buffer {name}")?;
    }
    Ok(())
}

fn list(text: &mut String, title: &str, ports: &[Port], note: impl Fn(&Port) -> &'static str) -> std::fmt::Result {
    let width = ports.iter().map(|port| port.name.len()).max().unwrap_or(0);
    for (index, port) in ports.iter().enumerate() {
        let title = if index == 0 { title } else { "" };
        let (name, ty, note) = (&port.name, port.ty(), note(port));
        writeln!(text, "{title:<12}{name:<width$}  {ty}{note}")?;
    }
    Ok(())
}

struct Row {
    path: String,
    class: String,
    elements: String,
    tensors: String,
}

fn tree(root: &ModuleInfo) -> String {
    let mut rows = Vec::new();
    if !root.parameters.is_empty() || !root.buffers.is_empty() {
        rows.push(row(root, "(the model)".to_string(), 1));
    }
    children(root, 0, &mut rows);
    let width = |column: fn(&Row) -> &str| {
        let widths = rows.iter().map(|row| column(row).chars().count());
        widths.max().unwrap_or(0)
    };
    let (path, class) = (width(|r| &r.path), width(|r| &r.class));
    let elements = width(|r| &r.elements);
    let mut text = String::new();
    for row in &rows {
        let line = format!("{:<path$}  {:<class$}  {:>elements$}  {}", row.path, row.class, row.elements, row.tensors);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn children(module: &ModuleInfo, depth: usize, rows: &mut Vec<Row>) {
    for group in groups(&module.children) {
        let child = &group[0];
        // A container of nothing but equal modules shares its line with them.
        let inner = match groups(&child.children).as_slice() {
            [inner] if group.len() == 1 && inner.len() > 1 && is_bare(child) => Some(*inner),
            _ => None,
        };
        let label = match inner {
            Some(inner) => format!("{}.{}", child.name, span(inner)),
            None => span(group),
        };
        let (shown, count) = match inner {
            Some(inner) => (&inner[0], inner.len()),
            None => (child, group.len()),
        };
        rows.push(row(shown, format!("{}{label}", "  ".repeat(depth)), count));
        children(shown, depth + 1, rows);
    }
}

fn is_bare(module: &ModuleInfo) -> bool {
    module.class.is_empty() && module.parameters.is_empty() && module.buffers.is_empty()
}

fn row(module: &ModuleInfo, path: String, count: usize) -> Row {
    let elements = match module.elements {
        0 => String::new(),
        elements if count == 1 => grouped(elements),
        elements => format!("{count} × {}", grouped(elements)),
    };
    let parameters = module.parameters.iter().map(|p| match p.trainable {
        true => tensor(p),
        false => format!("{} (frozen)", tensor(p)),
    });
    let buffers = module.buffers.iter().map(|b| format!("buffer {}", tensor(b)));
    Row {
        path,
        class: class(module).to_string(),
        elements,
        tensors: parameters.chain(buffers).collect::<Vec<_>>().join(", "),
    }
}

/// Neighbours that differ in their numbers only.
fn groups(modules: &[ModuleInfo]) -> Vec<&[ModuleInfo]> {
    modules.chunk_by(|a, b| is_number(&a.name) && is_number(&b.name) && alike(a, b)).collect()
}

fn is_number(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit())
}

/// Equal apart from names: classes, tensors and everything below.
fn alike(a: &ModuleInfo, b: &ModuleInfo) -> bool {
    a.class == b.class
        && a.parameters == b.parameters
        && a.buffers == b.buffers
        && a.children.len() == b.children.len()
        && a.children.iter().zip(&b.children).all(|(a, b)| a.name == b.name && alike(a, b))
}

/// `[0..12]` for several, the name for one.
fn span(group: &[ModuleInfo]) -> String {
    match group {
        [one] => one.name.clone(),
        [first, .., last] => match last.name.parse::<u64>() {
            Ok(last) => format!("[{}..{}]", first.name, last + 1),
            Err(_) => format!("[{}..={}]", first.name, last.name),
        },
        [] => String::new(),
    }
}

fn tensor(tensor: &TensorInfo) -> String {
    if let Some(owner) = &tensor.tied_to {
        return format!("{} = {owner}", tensor.name);
    }
    format!("{} {}{:?}", tensor.name, tensor.dtype, tensor.shape)
}

fn operators(nodes: usize, counts: &[OperatorCount]) -> String {
    let mut text = format!("{nodes} nodes: ");
    let mut column = text.len();
    for (index, entry) in counts.iter().enumerate() {
        let comma = if index + 1 < counts.len() { ", " } else { "" };
        let item = format!("{} {}{comma}", entry.count, entry.operator);
        if column + item.trim_end().len() > WIDTH {
            text.truncate(text.trim_end().len());
            text.push_str("\n    ");
            column = 4;
        }
        column += item.len();
        text.push_str(&item);
    }
    text.push('\n');
    text
}

fn class(module: &ModuleInfo) -> &str {
    module.class.rsplit('.').next().unwrap_or("")
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    match text {
        "" => otherwise,
        text => text,
    }
}

/// `124,439,808`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `474.7 MiB`
fn bytes(number: u64) -> String {
    if number < 1024 {
        return format!("{number} bytes");
    }
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut value = number as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
