//! What `verify` prints.

use super::Report;
use crate::compare::{InFloat32, Row, Verdict};
use crate::failure::Result;
use crate::output::Output;
use crate::render::counted;
use crate::report::collectives;

pub fn show(report: &Report, out: &Output) -> Result<()> {
    if out.is_json() { out.record("verify", report) } else { out.result(&text(report)) }
}

/// For people.
pub fn text(report: &Report) -> String {
    let dropout = if report.dropout { "dropout on" } else { "no dropout" };
    let mut text = format!(
        "{}: {}, {}, {}, {dropout}, in float64, against libtorch's autograd of the unscheduled model\n",
        report.schedule,
        counted(report.ranks as usize, "rank"),
        match report.micro_batches {
            1 => "one micro-batch".to_owned(),
            n => format!("{n} micro-batches"),
        },
        counted(report.steps as usize, "step"),
    );
    text += &rows(&report.rows);
    if let Some(own) = &report.unscheduled {
        text += &format!("the schedule is exact; against its own unscheduled program\n{}", rows(own));
    }
    if let Some(single) = &report.float32 {
        text += &format!("in float32, against autograd in float32\n{}", in_float32(single));
    }
    if !report.collectives.is_empty() {
        text += "communication of rank 0 in one step\n";
        text += &collectives(&report.collectives);
        if report.collectives != report.predicted_collectives {
            text += &format!("  the compiler foretold\n{}", collectives(&report.predicted_collectives));
        }
    }
    text += verdict(report);
    if report.verdict == Verdict::Wrong {
        text += &match &report.parting {
            Some(parting) => format!("first apart in {}\n", parting.shown()),
            None => "values and gradients of the first step agree: what follows them differs\n".to_owned(),
        };
    }
    text
}

fn rows(rows: &[Row]) -> String {
    rows.iter().map(|row| line(row.what, row.count, row.verdict.name(), row.worst, row.at.as_deref())).collect()
}

fn in_float32(rows: &[InFloat32]) -> String {
    let ulps = |row: &InFloat32| if row.worst == 0.0 { "equal".to_owned() } else { format!("{:.1} ulp", row.ulps) };
    rows.iter().map(|row| line(row.what, row.count, &ulps(row), row.worst, row.at.as_deref())).collect()
}

fn line(what: &str, count: usize, word: &str, worst: f64, at: Option<&str>) -> String {
    let worst = if worst == 0.0 { String::new() } else { format!("{worst:.1e}") };
    format!("  {what:<14} {count:>5}  {word:<9} {worst:>8}  {}\n", at.unwrap_or_default())
}

fn verdict(report: &Report) -> &'static str {
    match (report.verdict, &report.unscheduled) {
        (Verdict::Equal, Some(_)) => "equal: every bit is what it is without the schedule\n",
        (Verdict::Equal, None) => "equal: every bit is the same\n",
        (Verdict::Rounding, _) if report.float32.is_some() => {
            "right: float64 agrees, so distances in float32 are rounding: only the order of sums differs\n"
        }
        (Verdict::Rounding, _) => "right: only the order of sums differs\n",
        (Verdict::Wrong, _) => "wrong: the schedule does not compute what the model computes\n",
    }
}
