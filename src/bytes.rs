//! Bytes for a person. KiB, MiB and GiB are powers of 1024.

/// Gives a number of bytes with three significant decimals and its unit.
pub fn human(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value.abs() >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.2} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::human;

    #[rstest]
    #[case(0.0, "0 B")]
    #[case(-16.0, "-16 B")]
    #[case(1023.0, "1023 B")]
    #[case(1024.0, "1.00 KiB")]
    #[case(1_068_800.0, "1.02 MiB")]
    #[case(2_147_483_648.0, "2.00 GiB")]
    fn bytes_are_shown_in_the_largest_unit_that_is_at_least_one(#[case] bytes: f64, #[case] text: &str) {
        assert_eq!(human(bytes), text);
    }
}
