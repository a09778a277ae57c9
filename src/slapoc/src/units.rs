//! Numbers as people read them.

pub use slapo_core::units::bytes;

/// `365,337`
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `-12 %`; nothing where there is nothing to compare with.
pub fn change(before: u64, after: u64) -> String {
    if before == after || before == 0 {
        return String::new();
    }
    format!("{:+.0} %", (after as f64 / before as f64 - 1.0) * 100.0)
}

/// `8.3 s`, `4 min 10 s`, `2 h 5 min`
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {} s", whole / 60, whole % 60),
        _ => format!("{} h {} min", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_the_number_would_get_a_fourth_digit() {
        let shown = [0, 1023, 1024, 1024 * 1024 - 1, 499 << 20].map(bytes);
        assert_eq!(shown, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "499.0 MiB"]);
        assert_eq!([7, 1000, 365_337].map(grouped), ["7", "1,000", "365,337"]);
        assert_eq!([0.04, 61.0, 7500.0].map(seconds), ["0.0 s", "1 min 1 s", "2 h 5 min"]);
        assert_eq!([change(100, 50), change(3, 3), change(0, 9)], ["-50 %", "", ""]);
    }
}
