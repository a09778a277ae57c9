//! The mesh: its axes, their sizes and factors, and how a schedule names them.

use super::expand::Expander;
use super::hir::{AxisSize, Expr};
use super::number::Number;
use crate::compile::MeshAxis;
use slapo_syntax::{Code, Diagnostic, Span};

/// The devices as a grid; outermost axis first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mesh {
    pub axes: Vec<Axis>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    pub name: String,
    /// At least 1; 0 where an error was reported.
    pub size: i64,
    /// Sizes of its factors, the outer one first; empty where it is declared as one number.
    pub factors: Vec<i64>,
    /// Where it is declared.
    pub span: Span,
}

/// Axes that a schedule takes together: one or several, each whole or one factor of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axes(Vec<Taken>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taken {
    /// Position in the mesh.
    axis: u32,
    factor: Option<u32>,
}

impl Axes {
    pub fn whole(axis: u32) -> Axes {
        Axes(vec![Taken { axis, factor: None }])
    }

    /// The number of ranks along them; `None` where an error was reported.
    pub fn size(&self, axes: &[Axis]) -> Option<i64> {
        self.0.iter().try_fold(1_i64, |product, taken| {
            let axis = axes.get(taken.axis as usize)?;
            let size = match taken.factor {
                Some(at) => *axis.factors.get(at as usize)?,
                None => axis.size,
            };
            (size > 0).then(|| product.saturating_mul(size))
        })
    }

    /// Their names: `tp`, `tp[0]`.
    pub fn names(&self, axes: &[Axis]) -> Vec<String> {
        let name = |taken: &Taken| {
            let name = axes.get(taken.axis as usize).map_or("", |axis| axis.name.as_str());
            taken.factor.map_or(name.to_string(), |at| factor_name(name, at as usize))
        };
        self.0.iter().map(name).collect()
    }

    /// Each by itself: the factors of one axis, or the axes of several.
    pub fn parts(&self, axes: &[Axis]) -> Vec<Axes> {
        let one = |taken| Axes(vec![taken]);
        match self.0.as_slice() {
            [Taken { axis, factor: None }] => {
                let factors = axes.get(*axis as usize).map_or(0, |axis| axis.factors.len());
                (0..factors as u32).map(|at| one(Taken { axis: *axis, factor: Some(at) })).collect()
            }
            [_] => Vec::new(),
            several => several.iter().copied().map(one).collect(),
        }
    }

    /// Those of both; the one that is in both where they overlap.
    pub fn and(mut self, other: &Axes) -> Result<Axes, Axes> {
        for taken in &other.0 {
            let overlaps = |known: &Taken| {
                known.axis == taken.axis
                    && (known.factor.is_none() || taken.factor.is_none() || known.factor == taken.factor)
            };
            if self.0.iter().any(overlaps) {
                return Err(Axes(vec![*taken]));
            }
            self.0.push(*taken);
        }
        Ok(self)
    }
}

/// What a factor is called: `tp[0]`.
fn factor_name(axis: &str, at: usize) -> String {
    format!("{axis}[{at}]")
}

impl Mesh {
    /// The number of ranks; 1 without axes.
    pub fn world(&self) -> i64 {
        self.axes.iter().fold(1, |world: i64, axis| world.saturating_mul(axis.size))
    }

    /// What the compiler needs of it: to it a factor is an axis.
    pub(super) fn effects(&self) -> Vec<MeshAxis> {
        let mut all = Vec::new();
        for axis in &self.axes {
            match axis.factors.as_slice() {
                [] => all.push(MeshAxis { name: axis.name.clone(), size: axis.size.max(1) }),
                factors => all.extend(
                    factors
                        .iter()
                        .enumerate()
                        .map(|(at, size)| MeshAxis { name: factor_name(&axis.name, at), size: (*size).max(1) }),
                ),
            }
        }
        all
    }

    /// The axis of that name, or of which that is a factor.
    pub fn axis(&self, name: &str) -> Option<&Axis> {
        let name = name.split_once('[').map_or(name, |(axis, _)| axis);
        self.axes.iter().find(|axis| axis.name == name)
    }
}

/// Ranks beyond this are a slip.
const LARGEST_WORLD: i64 = 1 << 24;

/// Of more axes there are too many meshes to look at.
const MOST_SUGGESTED: usize = 4;

/// Evaluates the `mesh` item into the expander's mesh.
pub fn mesh(expander: &mut Expander) {
    let hir = expander.hir;
    let mut autos: Vec<(usize, Span)> = Vec::new();
    for (at, axis) in hir.axes.iter().enumerate() {
        let mut given = |expr: &Expr| match expander.number(expr) {
            Ok(number) => size(expander, &axis.name, number, expr.span),
            Err(_) => 0,
        };
        let (size, factors) = match &axis.size {
            AxisSize::Auto(span) => {
                autos.push((at, *span));
                (0, Vec::new())
            }
            AxisSize::Given(expr) => (given(expr), Vec::new()),
            AxisSize::Factors(exprs) => {
                let factors: Vec<i64> = exprs.iter().map(given).collect();
                (factors.iter().copied().fold(1, i64::saturating_mul), factors)
            }
        };
        expander.mesh.axes.push(Axis { name: axis.name.clone(), size, factors, span: axis.span });
    }
    if let [(_, first), (_, second), ..] = autos.as_slice() {
        expander.report.push(
            Diagnostic::error(Code::TwoAutos, "only one axis can be `auto`")
                .primary(*second, "for the second time")
                .secondary(*first, "first here"),
        );
        return;
    }
    let others = expander.mesh.axes.iter().enumerate();
    let mut others = others.filter(|(at, _)| autos.iter().all(|(auto, _)| auto != at)).map(|(_, axis)| axis.size);
    let product = others.try_fold(1_i64, i64::checked_mul).filter(|world| *world <= LARGEST_WORLD);
    match (product, autos.first()) {
        // A size that is wrong was reported.
        (Some(0), _) => {}
        (None, _) => {
            let span = hir.mesh.unwrap_or(Span::new(slapo_syntax::FileId(0), 0, 0));
            let message = format!("the mesh has more than {LARGEST_WORLD} ranks");
            expander.report.push(Diagnostic::error(Code::AxisSize, message).primary(span, "too many"));
        }
        (Some(others), Some((at, span))) => expander.mesh.axes[*at].size = auto(expander, *at, others, *span),
        (Some(ranks), None) => whole_world(expander, ranks),
    }
}

fn size(expander: &mut Expander, axis: &str, number: Number, span: Span) -> i64 {
    let size =
        number.whole().and_then(|size| i64::try_from(size).ok()).filter(|size| (1..=LARGEST_WORLD).contains(size));
    size.unwrap_or_else(|| {
        let message = format!("axis `{axis}` cannot have size {number}");
        let diagnostic = Diagnostic::error(Code::AxisSize, message)
            .primary(span, number.to_string())
            .help("a size is a whole number of at least 1, or `auto`");
        expander.report.push(diagnostic);
        0
    })
}

/// What the world leaves for the `auto` axis.
fn auto(expander: &mut Expander, at: usize, others: i64, span: Span) -> i64 {
    let name = expander.hir.axes.get(at).map_or("", |axis| axis.name.as_str());
    let Some(world) = expander.overrides.world else {
        let message = format!("no world size is given: axis `{name}` has size 1");
        let note = Diagnostic::info(Code::AutoAxis, message)
            .primary(span, "1")
            .help("`--world N` checks for N ranks; a launch sets it by itself");
        expander.report.push(note);
        return 1;
    };
    if world >= 1 && world % others == 0 {
        return world / others;
    }
    let below = (world / others).max(1) * others;
    let message = format!("a world of {world} ranks does not divide by the other axes, which take {others}");
    let legal = [below, below + others, below + 2 * others].map(|world| world.to_string());
    let diagnostic = Diagnostic::error(Code::WorldSize, message)
        .primary(span, format!("would be {world} / {others}"))
        .help(format!("legal world sizes: {}, …", legal.join(", ")));
    expander.report.push(diagnostic);
    0
}

/// A mesh without `auto` must be the whole world.
fn whole_world(expander: &mut Expander, ranks: i64) {
    let Some(world) = expander.overrides.world.filter(|world| *world != ranks) else { return };
    let diagnostic = match expander.hir.mesh {
        Some(span) => {
            let message = format!("the mesh has {ranks} ranks, but the world has {world}");
            let refusal = Diagnostic::error(Code::WorldSize, message).primary(span, format!("{ranks} ranks"));
            let refusal = refusal.help(format!("launch {ranks} ranks, or make one axis `auto`"));
            match nearest(&expander.mesh, world) {
                meshes if meshes.is_empty() => refusal,
                meshes => refusal.help(format!("or a mesh of {world} ranks: {}", meshes.join("; "))),
            }
        }
        None => {
            let message = format!("the world has {world} ranks, but the schedule has no mesh to place them on");
            Diagnostic::error(Code::WorldSize, message).help("add `mesh { dp = auto }`")
        }
    };
    expander.report.push(diagnostic);
}

/// The meshes of `world` ranks that change the fewest axes, and those the least: at most three, as they are written.
fn nearest(mesh: &Mesh, world: i64) -> Vec<String> {
    if world > LARGEST_WORLD || mesh.axes.len() > MOST_SUGGESTED {
        return Vec::new();
    }
    let sizes: Vec<i64> = mesh.axes.iter().map(|axis| axis.size.max(1)).collect();
    let mut found = factorizations(world, sizes.len());
    let changed = |other: &[i64]| sizes.iter().zip(other).filter(|(a, b)| a != b).count();
    let ratio = |(a, b): (&i64, &i64)| *a.max(b) as f64 / *a.min(b) as f64;
    let distance = |other: &[i64]| sizes.iter().zip(other).map(ratio).product::<f64>();
    found.sort_by(|a, b| changed(a).cmp(&changed(b)).then(distance(a).total_cmp(&distance(b))));
    found.truncate(3);
    let shown = |sizes: &Vec<i64>| {
        let axes = mesh.axes.iter().zip(sizes).map(|(axis, size)| format!("{} = {size}", axis.name));
        format!("`{}`", axes.collect::<Vec<_>>().join(", "))
    };
    found.iter().map(shown).collect()
}

/// All ways to write a number as a product of so many factors, in order.
fn factorizations(number: i64, factors: usize) -> Vec<Vec<i64>> {
    if factors <= 1 {
        return vec![vec![number; factors]];
    }
    let divisors = (1..=number).take_while(|d| d * d <= number).filter(|d| number % d == 0);
    let mut divisors: Vec<i64> = divisors.flat_map(|d| [d, number / d]).collect();
    divisors.sort_unstable();
    divisors.dedup();
    let with = |first: i64| {
        let rest = factorizations(number / first, factors - 1);
        rest.into_iter().map(move |rest| [vec![first], rest].concat())
    };
    divisors.into_iter().flat_map(with).collect()
}
