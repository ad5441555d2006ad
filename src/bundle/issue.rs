//! `issue.md`: the draft of an issue in the form of PyTorch's bug template.

use askama::Template;

use super::Content;
use super::facts;
use super::measured;

/// GitHub takes no longer body.
const MOST: usize = 65_535;
/// How many findings the issue tells; the page has all.
const MOST_FINDINGS: usize = 5;

/// The issue's template.
#[derive(Template)]
#[template(path = "issue.md", escape = "none")]
struct Issue<'a> {
    content: &'a Content<'a>,
    title: String,
    summary: String,
    references: Vec<String>,
    reason: String,
    native: Option<String>,
    warning: Option<String>,
    /// The long parts, in the order of [`PARTS`].
    parts: [Part; 8],
}

/// Where each part is kept whole, for when the issue has no room for it.
const PARTS: [&str; 8] = [
    "repro.py",
    "repro.log",
    "report.html",
    "report.html",
    "report.html",
    "report.html",
    "report.html",
    "versions.txt",
];

/// A part of the issue that may be long.
struct Part {
    text: String,
    is_attached: bool,
}

impl Issue<'_> {
    /// A part's text, or where to find it.
    fn part(&self, index: usize) -> String {
        let part = &self.parts[index];
        if part.is_attached {
            format!("See the attached `{}`.", PARTS[index])
        } else {
            part.text.trim_end().to_owned()
        }
    }

    fn has(&self, index: usize) -> bool {
        !self.parts[index].text.is_empty()
    }
}

/// The draft. What it has no room for is in the other files of the bundle, which are attached.
///
/// # Errors
/// The template fails, which would be a mistake of torchleak's.
pub fn issue(content: &Content<'_>) -> askama::Result<String> {
    let run = content.run;
    let texts = [
        fenced("python", content.script),
        content.verified.output.as_deref().map_or_else(String::new, |output| fenced("", output)),
        steps(content),
        findings(content),
        ablation(content),
        versions(content),
        bisection(content),
        content.verified.versions.as_deref().map_or_else(String::new, |versions| fenced("", versions)),
    ];
    let mut issue = Issue {
        content,
        title: plain(&facts::title(run)),
        summary: prose(&run.case.spec.summary),
        references: run.case.spec.upstream.iter().map(ToString::to_string).collect(),
        reason: prose(&facts::reason(run)),
        native: facts::native(run).map(|sentence| prose(&sentence)),
        warning: content.verified.verification.warning(facts::verdict(run)).map(|warning| prose(&warning)),
        parts: texts.map(|text| Part { text, is_attached: false }),
    };
    loop {
        let text = issue.render()?;
        let longest =
            issue.parts.iter_mut().filter(|part| !part.is_attached).max_by_key(|part| part.text.len());
        match longest {
            // Bytes are never fewer than characters, whichever of the two is counted.
            Some(part) if text.len() > MOST && !part.text.is_empty() => part.is_attached = true,
            _ => return Ok(text),
        }
    }
}

fn steps(content: &Content<'_>) -> String {
    let steps = measured::steps(content.run);
    let rows = steps.rows.into_iter().map(|(is_warm_up, mut row)| {
        if is_warm_up {
            row[0].push_str(" (warm-up)");
        }
        row
    });
    table(&steps.titles, rows)
}

fn findings(content: &Content<'_>) -> String {
    let findings = facts::findings(content.run);
    let told = findings.iter().take(MOST_FINDINGS).map(|(sentence, repair)| {
        let repair =
            repair.as_ref().map_or_else(String::new, |repair| format!("\n  To repair: {}.", prose(repair)));
        format!("- {}.{repair}\n", prose(sentence))
    });
    let mut text: String = told.collect();
    if findings.len() > MOST_FINDINGS {
        text.push_str(&format!(
            "- {} smaller findings are in `report.html`.\n",
            findings.len() - MOST_FINDINGS
        ));
    }
    text
}

fn ablation(content: &Content<'_>) -> String {
    let Some(ablation) = content.ablation else { return String::new() };
    let rows = ablation.conditions.iter().map(|one| {
        vec![one.condition(), one.value(), one.verdict().to_owned(), one.retained(), one.effect()]
    });
    let titles = ["condition", "value", "verdict", "retained per step", "effect"].map(str::to_owned);
    format!("{}\n\n{}", prose(&ablation.sentence), table(&titles, rows)).trim_start().to_owned()
}

fn versions(content: &Content<'_>) -> String {
    if content.versions.len() < 2 {
        return String::new();
    }
    let rows = content.versions.iter().map(|row| {
        [row.torch.as_str(), row.commit(), &row.python, row.device(), row.verdict(), &row.growth()]
            .map(str::to_owned)
            .to_vec()
    });
    table(&["torch", "commit", "Python", "device", "verdict", "growth per step"].map(str::to_owned), rows)
}

fn bisection(content: &Content<'_>) -> String {
    let Some(found) = content.bisection else { return String::new() };
    let mut text = prose(&found.reason);
    if let (Some(before), Some(after)) = (&found.last_before, &found.first_after) {
        text.push_str(&format!(
            "\n\nThe last before the change is `{}`, the first after it `{}`.",
            code(before),
            code(after)
        ));
    }
    if let Some(link) = found.compare.as_ref().filter(|link| link.starts_with("https://")) {
        text.push_str(&format!(" The commits between them: {link}"));
    }
    let rows =
        found.tested.iter().map(|one| vec![one.candidate.clone(), one.verdict().to_owned(), one.growth()]);
    let titles = ["candidate", "verdict", "growth per step"].map(str::to_owned);
    format!("{text}\n\n{}", table(&titles, rows))
}

/// A table, its cells escaped.
fn table(titles: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| plain(cell).replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule = format!("|{}\n", "---|".repeat(titles.len()));
    rows.fold(line(titles) + &rule, |text, row| text + &line(&row))
}

/// A text in which nothing is Markdown or HTML.
fn plain(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '#' | '~' | '!' | '|' => out.extend(['\\', c]),
            // A name after it would be told of the issue.
            '@' => out.push_str("@\u{200b}"),
            '\n' | '\r' => out.push(' '),
            _ => out.push(c),
        }
        out
    })
}

/// A sentence of ours: what is between its back quotes is code, and nothing else is markup.
fn prose(sentence: &str) -> String {
    let parts: Vec<&str> = sentence.split('`').collect();
    // An odd number of marks is not ours.
    if parts.len().is_multiple_of(2) {
        return plain(sentence);
    }
    let parts = parts
        .iter()
        .enumerate()
        .map(|(index, part)| if index % 2 == 1 { format!("`{}`", code(part)) } else { plain(part) });
    parts.collect()
}

/// What can stand between single back quotes.
fn code(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('`', "'")
}

/// A block of code whose fence nothing in it can close.
fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}{language}\n{}\n{fence}", text.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_cannot_become_markup() {
        assert_eq!(plain("<script>*x*|[a](b)\nc @all"), "&lt;script&gt;\\*x\\*\\|\\[a\\](b) c @\u{200b}all");
        assert_eq!(prose("a `f.<locals>.g` holds <b>"), "a `f.<locals>.g` holds &lt;b&gt;");
        assert_eq!(prose("one ` only"), "one \\` only");
        assert_eq!(fenced("", "a\n```\n<b>"), "````\na\n```\n<b>\n````");
    }
}
