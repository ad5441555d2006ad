//! Text from outside as Markdown that shows just that text.

/// The text on one line, with everything escaped that Markdown, HTML or GitHub would take for its own.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '~' | '$' | '#' => safe.extend(['\\', character]),
            '<' => safe.push_str("&lt;"),
            '&' => safe.push_str("&amp;"),
            // Also ends of lines: a table's row and a list's item have one line.
            character if character.is_control() => safe.push(' '),
            character => safe.push(character),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn nothing_of_a_text_is_taken_for_markup() {
        let text = "a|b\n<img src=x>&amp; `c` *d* __e__ [f](g) ~h~ $i$ #1 \\|\u{1b}[31m";
        assert_eq!(
            escaped(text),
            "a\\|b &lt;img src=x>&amp;amp; \\`c\\` \\*d\\* \\_\\_e\\_\\_ \\[f\\](g) \\~h\\~ \\$i\\$ \\#1 \\\\\\| \\[31m"
        );
    }
}
