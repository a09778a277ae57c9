//! Shapes of what operators compute, as far as sizes are known to be equal: what a replacement is held to.

use super::operators::{Given, Operator};
use slapo_model::sym::Size;

/// The shape of what `operator` computes of `given`, by slot; `None` where operands do not fit each other.
pub fn result<'g>(
    operator: &Operator,
    given: &[Given],
    shape: impl Fn(&Given) -> Option<&'g [Size]>,
) -> Option<Vec<Size>> {
    let of = |at: usize| given.get(at).and_then(&shape);
    match (operator.name, of(0), of(1)) {
        ("add" | "mul" | "sub" | "div" | "pow", Some(a), Some(b)) => broadcast(a, b),
        ("add" | "mul" | "sub" | "div" | "pow", a, b) => a.or(b).map(<[Size]>::to_vec),
        ("addmm", Some(b), Some(x)) => {
            let product = matmul(x, of(2)?)?;
            (broadcast(b, &product)? == product).then_some(product)
        }
        ("attention", Some(q), Some(k)) => attention(q, k, of(2)?, of(3)),
        ("layer_norm", Some(x), weight) => {
            let last = x.last().map(std::slice::from_ref);
            [weight, of(2)].into_iter().flatten().all(|w| Some(w) == last).then(|| x.to_vec())
        }
        ("linear", Some([batch @ .., width]), Some([out, inner])) => {
            let bias_fits = of(2).is_none_or(|bias| bias == std::slice::from_ref(out));
            (width == inner && bias_fits).then(|| [batch, std::slice::from_ref(out)].concat())
        }
        ("matmul", Some(a), Some(b)) => matmul(a, b),
        ("mean" | "sum", Some(x), _) => {
            let (Given::Dims(dims), keepdim) = (given.get(1)?, given.get(2)? == &Given::Bool(true)) else {
                return None;
            };
            let sizes = x.iter().enumerate().filter_map(|(at, size)| match (dims.contains(&(at as i64)), keepdim) {
                (true, true) => Some(Size::Const(1)),
                (true, false) => None,
                (false, _) => Some(size.clone()),
            });
            Some(sizes.collect())
        }
        ("transpose", Some(x), _) => {
            let (Given::Dims(a), Given::Dims(b)) = (given.get(1)?, given.get(2)?) else { return None };
            let (a, b) = (usize::try_from(*a.first()?).ok()?, usize::try_from(*b.first()?).ok()?);
            let mut swapped = x.to_vec();
            (a.max(b) < x.len()).then(|| {
                swapped.swap(a, b);
                swapped
            })
        }
        ("dropout" | "softmax", Some(x), _) => Some(x.to_vec()),
        (_, Some(x), _) if operator.is_elementwise() => Some(x.to_vec()),
        _ => None,
    }
}

/// Queries [.., rows, width], keys [.., columns, width], values [.., columns, out], a mask that broadcasts to the scores.
fn attention(q: &[Size], k: &[Size], v: &[Size], mask: Option<&[Size]>) -> Option<Vec<Size>> {
    let ([lead @ .., rows, width], [k_lead @ .., columns, k_width], [v_lead @ .., v_columns, out]) = (q, k, v) else {
        return None;
    };
    let scores = [lead, &[rows.clone(), columns.clone()]].concat();
    let mask_fits = mask.is_none_or(|mask| broadcast(mask, &scores).as_ref() == Some(&scores));
    let fits = lead == k_lead && lead == v_lead && width == k_width && columns == v_columns && mask_fits;
    fits.then(|| [lead, &[rows.clone(), out.clone()]].concat())
}

fn matmul(a: &[Size], b: &[Size]) -> Option<Vec<Size>> {
    let ([a_lead @ .., rows, inner], [b_lead @ .., height, columns]) = (a, b) else { return None };
    let lead = broadcast(a_lead, b_lead)?;
    (inner == height).then(|| [lead, vec![rows.clone(), columns.clone()]].concat())
}

/// The shape of two operands together.
fn broadcast(a: &[Size], b: &[Size]) -> Option<Vec<Size>> {
    let (long, short) = if a.len() >= b.len() { (a, b) } else { (b, a) };
    let lead = long.len() - short.len();
    let mut shape = long.to_vec();
    for (at, size) in short.iter().enumerate() {
        let one = Size::Const(1);
        match &shape[lead + at] {
            known if known == size || *size == one => {}
            known if *known == one => shape[lead + at] = size.clone(),
            _ => return None,
        }
    }
    Some(shape)
}
