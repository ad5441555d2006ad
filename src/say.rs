//! Standard error, for a person. A closed or full one must not end a run.

use std::io::Write;

/// Writes one line to standard error, if that can be written.
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}
