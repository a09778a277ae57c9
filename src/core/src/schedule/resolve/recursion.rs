//! Schedules that call themselves, directly or through others: refused, so that every schedule ends.

use super::super::hir::{Hir, ScheduleId};
use super::super::report::Report;
use slapo_syntax::{Code, Diagnostic, Span};
use std::collections::BTreeSet;

/// Reports every cycle once, and marks its schedules.
pub fn refuse(hir: &mut Hir, calls: &[(ScheduleId, ScheduleId, Span)], report: &mut Report) {
    let count = hir.schedules.len();
    let mut out: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (from, to, _) in calls {
        out[from.0 as usize].push(to.0 as usize);
        into[to.0 as usize].push(from.0 as usize);
    }
    let mut order = Vec::new();
    let mut seen = vec![false; count];
    for start in 0..count {
        postorder(start, &out, &mut seen, &mut order);
    }
    // Components in the reverse graph, by falling finishing time, are the cycles.
    let mut seen = vec![false; count];
    let mut cycles = Vec::new();
    for start in order.into_iter().rev() {
        let mut component = Vec::new();
        postorder(start, &into, &mut seen, &mut component);
        let calls_itself = component.iter().any(|at| out[*at].contains(at));
        if component.len() > 1 || calls_itself {
            cycles.push(component.into_iter().collect::<BTreeSet<usize>>());
        }
    }
    cycles.sort();
    for cycle in cycles {
        for at in &cycle {
            hir.schedules[*at].is_recursive = true;
        }
        report.push(explain(hir, calls, &cycle));
    }
}

fn explain(hir: &Hir, calls: &[(ScheduleId, ScheduleId, Span)], cycle: &BTreeSet<usize>) -> Diagnostic {
    let inside = |id: ScheduleId| cycle.contains(&(id.0 as usize));
    let mut places = calls.iter().filter(|(from, to, _)| inside(*from) && inside(*to));
    let first = cycle.iter().next().map(|at| &hir.schedules[*at]);
    let name = first.map_or("", |schedule| &schedule.name);
    let message = match cycle.len() {
        1 => format!("`{name}` calls itself"),
        _ => format!("`{name}` calls itself through other schedules"),
    };
    let diagnostic = Diagnostic::error(Code::Recursion, message)
        .help("every schedule must end: use a loop, or call another schedule");
    let diagnostic = match places.next() {
        Some((_, to, span)) => diagnostic.primary(*span, format!("calls `{}`", hir.schedule(*to).name)),
        None => diagnostic,
    };
    places.fold(diagnostic, |diagnostic, (_, to, span)| {
        diagnostic.secondary(*span, format!("calls `{}`", hir.schedule(*to).name))
    })
}

/// Adds what can be reached from `start` and was not seen before; a node stands behind what it reaches.
fn postorder(start: usize, edges: &[Vec<usize>], seen: &mut [bool], order: &mut Vec<usize>) {
    if std::mem::replace(&mut seen[start], true) {
        return;
    }
    let mut stack = vec![(start, 0)];
    while let Some((node, next)) = stack.last_mut() {
        match edges[*node].get(*next) {
            Some(to) => {
                *next += 1;
                if !std::mem::replace(&mut seen[*to], true) {
                    stack.push((*to, 0));
                }
            }
            None => {
                order.push(*node);
                stack.pop();
            }
        }
    }
}
