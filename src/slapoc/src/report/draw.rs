//! [`Report`] as text.

use super::{Block, Count, Listed, MemoryChange, Report};
use crate::render;
use crate::units::{bytes, change, grouped};
use slapo_core::memory::Memory;
use slapo_program::CollectiveCount;
use std::fmt::{Result, Write};

const WIDTH: usize = 110;

/// Causes stand behind this column where they can.
const CAUSE: usize = 76;

pub fn draw(report: &Report) -> String {
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = write(&mut text, report);
    text
}

fn write(text: &mut String, report: &Report) -> Result {
    header(text, report)?;
    for block in &report.blocks {
        writeln!(text)?;
        self::block(text, block)?;
    }
    writeln!(text)?;
    summary(text, report)?;
    writeln!(text)?;
    memory(text, &report.memory)?;
    for skipped in &report.not_applied {
        let line = format!("not applied   {}", skipped.what);
        writeln!(text, "\n{line:<CAUSE$}  {}\n              {}", skipped.cause, skipped.reason)?;
    }
    Ok(())
}

fn header(text: &mut String, report: &Report) -> Result {
    let sizes = match report.seq {
        Some(seq) => format!("batch {}, seq {seq}", report.batch),
        None => format!("batch {}", report.batch),
    };
    let model = &report.model;
    let ranks = render::counted(report.ranks as usize, "rank");
    writeln!(text, "{} on {} ({}), {sizes}, {ranks}", report.schedule, model.class, model.file)?;
    if report.blocks.is_empty() {
        writeln!(text, "\nno changes: every operator runs as the model has it")?;
    }
    Ok(())
}

fn block(text: &mut String, block: &Block) -> Result {
    let name = if block.pattern.is_empty() { "the model" } else { &block.pattern };
    let count = if block.count > 1 { format!("{} × ", block.count) } else { String::new() };
    writeln!(text, "  {name:<40} {count}{}", block.class)?;
    let width = block.changes.iter().map(|change| change.what.len()).max().unwrap_or(0);
    for change in &block.changes {
        let line = format!("    {} {:<width$}  {}", change.symbol, change.what, change.detail);
        let via = change.via.as_ref().map(|via| format!(" ({via})")).unwrap_or_default();
        writeln!(text, "{line:<CAUSE$}  {}{via}", change.cause)?;
    }
    Ok(())
}

fn summary(text: &mut String, report: &Report) -> Result {
    let parameters = &report.parameters;
    writeln!(text, "parameters    trained {}", counted(parameters.trained))?;
    if parameters.frozen.count.tensors > 0 {
        writeln!(text, "              frozen {}:{}", counted(parameters.frozen.count), names(&parameters.frozen))?;
    }
    let untouched = &parameters.untouched;
    match untouched.count.tensors {
        0 => writeln!(text, "              every one is named by a step")?,
        all if all == parameters.trained.tensors + parameters.frozen.count.tensors => {
            writeln!(text, "              no step names any")?
        }
        _ => writeln!(text, "              no step names {}:{}", counted(untouched.count), names(untouched))?,
    }
    if report.micro_batches > 1 {
        let rows = render::counted((report.batch / i64::from(report.micro_batches)) as usize, "row");
        writeln!(text, "batch         {} micro-batches of {rows}", report.micro_batches)?;
    }
    if report.recomputed_operators > 0 {
        let of = report.forward_operators;
        writeln!(text, "recompute     {} of {of} forward operators run twice", report.recomputed_operators)?;
    }
    for rerun in &report.rerun {
        let nodes = render::counted(rerun.nodes, "node");
        writeln!(text, "derivative    `{}` has none here: {nodes} differentiated by running again", rerun.operator)?;
    }
    writeln!(text, "numbers       {}", meaning(report.class))
}

fn meaning(class: &str) -> String {
    let meaning = match class {
        "exact" => "bit-equal to the empty schedule",
        "reassociating" => "sums in another order than the empty schedule's",
        "lossy" => "less precise than the empty schedule's",
        _ => "another training than the empty schedule's",
    };
    format!("{class}: {meaning}")
}

fn memory(text: &mut String, memory: &MemoryChange) -> Result {
    let after = memory.after;
    let Some(before) = memory.before else {
        writeln!(text, "memory per rank, predicted at the peak of a step")?;
        return rows(&after, &after)
            .iter()
            .try_for_each(|(name, _, after)| writeln!(text, "  {name:<14}{:>12}", bytes(*after)));
    };
    writeln!(text, "{:<16}{:>12}{:>12}", "memory per rank", "before", "after")?;
    for (name, before, after) in rows(&before, &after) {
        let line = format!("  {name:<14}{:>12}{:>12}  {:>6}", bytes(before), bytes(after), change(before, after));
        writeln!(text, "{}", line.trim_end())?;
    }
    writeln!(text, "  predicted, at the peak of a step; before: the empty schedule")
}

/// Collectives of one step, a line each.
pub fn traffic(collectives: &[CollectiveCount]) -> String {
    let width = collectives.iter().map(|c| c.axis.len()).max().unwrap_or(0);
    let line = |c: &CollectiveCount| {
        let calls = render::counted(c.calls as usize, "call");
        format!("  {:<width$}  {:<14}  {:<9}  {calls:>10}  {:>10}\n", c.axis, c.kind, c.function, bytes(c.bytes))
    };
    collectives.iter().map(line).collect()
}

fn rows(before: &Memory, after: &Memory) -> [(&'static str, u64, u64); 6] {
    [
        ("parameters", before.parameters, after.parameters),
        ("gradients", before.gradients, after.gradients),
        ("optimizer", before.optimizer, after.optimizer),
        ("activations", before.activations, after.activations),
        ("buffers", before.buffers, after.buffers),
        ("together", before.peak(), after.peak()),
    ]
}

/// Lines of patterns, below the summary's second column.
fn names(listed: &Listed) -> String {
    let mut text = String::new();
    let mut column = WIDTH;
    for (i, pattern) in listed.patterns.iter().enumerate() {
        let comma = if i + 1 < listed.patterns.len() { ", " } else { "" };
        if column + pattern.len() + comma.len() > WIDTH {
            text.truncate(text.trim_end().len());
            text.push_str("\n                ");
            column = 16;
        }
        text.push_str(&format!("{pattern}{comma}"));
        column += pattern.len() + comma.len();
    }
    text
}

/// `174,656 in 39 tensors`
pub fn counted(count: Count) -> String {
    format!("{} in {}", grouped(count.elements), render::counted(count.tensors, "tensor"))
}
