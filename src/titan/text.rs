//! Text out of a log, for a terminal.

/// Most characters that are shown.
const MOST: usize = 200;

/// Text without anything that steers a terminal or turns the direction of writing, and not too long.
pub fn plain(text: &str) -> String {
    let steers = |c: char| {
        c.is_control()
            || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    text.chars().filter(|c| !steers(*c)).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn nothing_of_a_log_steers_the_terminal() {
        assert_eq!(plain("/tmp/\x1b[2J\x07a\u{9b}31m\u{202e}b\n"), "/tmp/[2Ja31mb");
        assert_eq!(plain(&"é".repeat(500)).chars().count(), 200);
    }
}
