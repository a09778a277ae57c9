//! Numbers of bytes as people read them.

const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];

/// `1.2 MiB`, `640 B`
pub fn bytes(count: u64) -> String {
    if count < 1024 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1024.0;
    let mut unit = 0;
    // What would be rounded to 1024.0 is shown in the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}
