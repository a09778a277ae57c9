//! [`Report`] as text.

use super::{Block, Count, Listed, MemoryChange, Parameters, Replicated, Report};
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
    if !report.layouts.is_empty() {
        writeln!(text)?;
        layouts(text, report)?;
    }
    if !report.collectives.is_empty() {
        writeln!(text)?;
        communication(text, report)?;
    }
    writeln!(text)?;
    summary(text, report)?;
    writeln!(text)?;
    memory(text, &report.memory, report.ranks)?;
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
    if !report.knobs.is_empty() {
        let shown = report.knobs.iter().map(|knob| {
            let set = if knob.is_set { " (set)" } else { "" };
            format!("{} = {}{set}", knob.name, knob.value)
        });
        writeln!(text, "knobs: {}", shown.collect::<Vec<_>>().join(", "))?;
    }
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
        all if all == parameters_in_all(parameters) => writeln!(text, "              no step names any")?,
        _ => writeln!(text, "              no step names {}:{}", counted(untouched.count), names(untouched))?,
    }
    for Replicated { axis, parameters: whole, stated } in &parameters.replicated {
        if stated.count.tensors > 0 {
            let count = counted(stated.count);
            writeln!(text, "              whole on purpose on every rank of `{axis}` {count}:{}", names(stated))?;
        }
        match whole.count.tensors {
            0 if stated.count.tensors > 0 => writeln!(text, "              every other one is split over `{axis}`")?,
            all if all == parameters_in_all(parameters) => {
                writeln!(text, "              nothing is split over `{axis}`: every rank holds all")?;
            }
            0 => writeln!(text, "              every one is split over `{axis}`")?,
            _ if whole.patterns == untouched.patterns => {
                writeln!(text, "              these are whole on every rank of `{axis}`")?;
            }
            _ => {
                let count = counted(whole.count);
                writeln!(text, "              whole on every rank of `{axis}` {count}:{}", names(whole))?;
            }
        }
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
    for merged in &report.merged {
        let at = if merged.pattern.is_empty() { "the model" } else { &merged.pattern };
        let (all, kind, axis) = (merged.reductions, merged.kind, &merged.axis);
        writeln!(text, "gradients     {all} {kind} over {axis} merged into 1 at {at}")?;
    }
    writeln!(text, "numbers       {}", meaning(report.class))
}

fn parameters_in_all(parameters: &Parameters) -> usize {
    parameters.trained.tensors + parameters.frozen.count.tensors
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

/// From this part of the peak on it is worth it to make the tensors of the loss smaller.
const NOTABLE: u64 = 16;

fn memory(text: &mut String, memory: &MemoryChange, ranks: i64) -> Result {
    terms(text, memory, ranks)?;
    let Some(largest) = &memory.largest else { return Ok(()) };
    let (name, shape, size) = (&largest.name, &largest.shape, bytes(largest.bytes));
    writeln!(text, "  the largest activation is `{name}` {shape:?}, {size}")?;
    if largest.is_of_loss && largest.bytes * NOTABLE >= memory.after.peak() {
        writeln!(
            text,
            "  it has an entry for every token and class: `std.parallel.vocab` splits classes over ranks, and the"
        )?;
        writeln!(text, "  loss with them; `accumulate` computes the loss of fewer rows at a time")?;
    }
    Ok(())
}

fn terms(text: &mut String, memory: &MemoryChange, ranks: i64) -> Result {
    let after = memory.after;
    let of = match (ranks, memory.peaks) {
        (1, _) => String::new(),
        (_, [first, last]) if first == last => format!(" for rank {}, as for every rank", memory.rank),
        (_, [first, last]) => {
            format!(" for rank {} (rank 0 needs {}, the last {})", memory.rank, bytes(first), bytes(last))
        }
    };
    let Some(before) = memory.before else {
        writeln!(text, "memory per rank, predicted at the peak of a step{of}")?;
        return rows(&after, &after)
            .iter()
            .try_for_each(|(name, _, after)| writeln!(text, "  {name:<14}{:>12}", bytes(*after)));
    };
    writeln!(text, "{:<16}{:>12}{:>12}", "memory per rank", "before", "after")?;
    for (name, before, after) in rows(&before, &after) {
        let line = format!("  {name:<14}{:>12}{:>12}  {:>6}", bytes(before), bytes(after), change(before, after));
        writeln!(text, "{}", line.trim_end())?;
    }
    writeln!(text, "  predicted{of}, at the peak of a step; before: the empty schedule")
}

/// Collectives as the worker counts them, a line each.
pub fn collectives(counts: &[CollectiveCount]) -> String {
    let rows =
        counts.iter().map(|c| [c.axis.clone(), c.kind.clone(), c.function.clone(), calls(c.calls), bytes(c.bytes)]);
    table(&rows.collect::<Vec<_>>())
}

/// How the mesh holds what steps have touched, by axis.
fn layouts(text: &mut String, report: &Report) -> Result {
    let axes = &report.axes;
    let mut header = ["layouts".to_owned(), "whole".to_owned(), "first rank".to_owned()].to_vec();
    header.extend(axes.iter().cloned());
    let mut lines = vec![(header, String::new())];
    for module in &report.layouts {
        let name = if module.pattern.is_empty() { "the model" } else { &module.pattern };
        let count = if module.count > 1 { format!("{} × ", module.count) } else { String::new() };
        lines.push((Vec::new(), format!("  {name:<40} {count}{}", module.class)));
        for value in &module.values {
            let own = [
                format!("    {}", value.what),
                format!("{}{:?}", value.dtype, value.shape),
                format!("{:?}", value.local),
            ];
            lines.push((own.iter().chain(&value.layouts).cloned().collect(), String::new()));
        }
    }
    let rows: Vec<&Vec<String>> = lines.iter().map(|(row, _)| row).filter(|row| !row.is_empty()).collect();
    let widths = widths(&rows);
    for (row, heading) in &lines {
        match row.is_empty() {
            true => writeln!(text, "{heading}")?,
            false => writeln!(text, "{}", aligned(row, &widths))?,
        }
    }
    Ok(())
}

/// Lists of more characters do not say more than their length.
const LONG: usize = 60;

fn communication(text: &mut String, report: &Report) -> Result {
    writeln!(text, "communication of a rank in one step")?;
    let rows = report.collectives.iter().map(|c| {
        let place = match (c.what, c.place.is_empty()) {
            ("a value", true) => "the model".to_owned(),
            ("a value", false) => c.place.clone(),
            (what, true) => what.to_owned(),
            ("the parameter", false) if c.place.len() <= LONG => c.place.clone(),
            (what, false) if c.place.len() <= LONG => format!("{what} of {}", c.place),
            ("the gradient", false) => format!("the gradients of {} parameters", c.places),
            (_, false) => format!("{} parameters", c.places),
        };
        [c.axis.clone(), c.kind.clone(), c.function.to_owned(), calls(c.calls), bytes(c.bytes), place]
    });
    text.push_str(&table(&rows.collect::<Vec<_>>()));
    writeln!(text, "  together")?;
    let totals = report.collective_totals.iter();
    let rows = totals.map(|t| [t.axis.clone(), t.function.to_owned(), calls(t.calls), bytes(t.bytes)]);
    text.push_str(&table(&rows.collect::<Vec<_>>()));
    Ok(())
}

fn calls(calls: u64) -> String {
    render::counted(calls as usize, "call")
}

/// Rows in columns as wide as they need, indented.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.to_vec()).collect();
    let widths = widths(&rows.iter().collect::<Vec<_>>());
    rows.iter().map(|row| format!("  {}\n", aligned(row, &widths))).collect()
}

fn widths(rows: &[&Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

fn aligned(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join("  ").trim_end().to_owned()
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
