//! Errors of case files: which file, which line, what is wrong and what to write instead.

use std::fmt;

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};

/// Joins a message and a hint into the one string that serde and garde carry.
///
/// Both libraries pass an error on as text alone, so the hint travels below the first line.
/// [`Problem::from_text`] takes the two apart again.
pub(super) fn with_hint(message: impl fmt::Display, hint: impl fmt::Display) -> String {
    format!("{message}\n{hint}")
}

/// A place in a case file. Lines and columns begin at 1, and columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    pub line: u64,
    pub column: u64,
    /// Offset in bytes from the beginning of the file.
    pub offset: usize,
    /// Length in bytes, 0 where only a point is known.
    pub length: usize,
}

/// One thing that is wrong with a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    pub hint: Option<String>,
    pub at: Option<Position>,
}

impl Problem {
    /// A problem without a place and without a hint.
    pub(super) fn new(message: impl fmt::Display) -> Self {
        Self { message: message.to_string(), hint: None, at: None }
    }

    /// Takes apart what [`with_hint`] joined.
    pub(super) fn from_text(text: &str) -> Self {
        match text.split_once('\n') {
            Some((message, hint)) => Self::new(message).hint(hint),
            None => Self::new(text),
        }
    }

    pub(super) fn hint(self, hint: impl fmt::Display) -> Self {
        Self { hint: Some(hint.to_string()), ..self }
    }

    pub(super) fn at(self, at: Option<Position>) -> Self {
        Self { at, ..self }
    }
}

/// A case that cannot be used.
///
/// `Display` is one line, `file:line:column: message`. [`CaseError::render`] adds the offending
/// lines and the hints.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.headline())]
pub struct CaseError(Box<Details>);

#[derive(Debug, Clone)]
struct Details {
    file: String,
    /// Never empty.
    problems: Vec<Problem>,
    text: Option<NamedSource<String>>,
}

impl Details {
    fn headline(&self) -> String {
        let more = match self.problems.len() {
            1 => String::new(),
            n => format!(" (and {} more)", n - 1),
        };
        format!("{}: {}{more}", self.place(), self.first().message)
    }

    fn place(&self) -> String {
        match self.first().at {
            Some(at) => format!("{}:{}:{}", self.file, at.line, at.column),
            None => self.file.clone(),
        }
    }

    fn first(&self) -> &Problem {
        &self.problems[0]
    }
}

impl CaseError {
    /// `file` is the name to show. `text` is what the file holds, as far as it could be read.
    pub(super) fn new(file: &str, text: Option<&str>, problems: Vec<Problem>) -> Self {
        let text = text.map(harmless);
        let mut problems: Vec<_> = problems
            .into_iter()
            .map(|problem| Problem {
                message: one_line(&problem.message),
                hint: problem.hint.as_deref().map(one_line),
                at: problem.at.map(|at| within(at, text.as_deref().unwrap_or_default())),
            })
            .collect();
        problems.sort_by_key(|problem| problem.at.map_or(usize::MAX, |at| at.offset));
        if problems.is_empty() {
            problems.push(Problem::new("the case cannot be read"));
        }
        let file = one_line(file);
        let text = text.map(|text| NamedSource::new(&file, text));
        Self(Box::new(Details { file, problems, text }))
    }

    /// The file as the user named it; `cases/NAME.yaml` for a shipped case.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// Everything that is wrong, in the order of the file. Never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.0.problems
    }

    /// The error for a person: message, offending lines, hints.
    ///
    /// With `color` it is drawn for a terminal; without, it is plain ASCII around the file's own
    /// text. Both contain `file:line:column` where a line is to blame. `width` is in columns.
    pub fn render(&self, color: bool, width: usize) -> String {
        let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::none() };
        let handler = GraphicalReportHandler::new_themed(theme)
            .with_width(width.max(20))
            .with_break_words(false)
            .with_context_lines(1)
            .with_links(false);
        let mut drawn = String::new();
        match handler.render_report(&mut drawn, &View(&self.0)) {
            Ok(()) => drawn,
            // Drawing can only fail on the snippet. The error itself must still be told.
            Err(_) => format!("{self}\n"),
        }
    }
}

impl Diagnostic for CaseError {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new("torchleak::case"))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.0.source_code()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.0.labels()
    }
}

impl Details {
    /// The hints; each once, with the lines it is about where there are several problems.
    fn help(&self) -> Option<String> {
        let mut hints: Vec<(&str, Vec<String>)> = Vec::new();
        for problem in &self.problems {
            let Some(hint) = problem.hint.as_deref() else { continue };
            let line = problem.at.map(|at| at.line.to_string());
            match hints.iter_mut().find(|(known, _)| *known == hint) {
                Some((_, lines)) => lines.extend(line),
                None => hints.push((hint, line.into_iter().collect())),
            }
        }
        let told = hints.into_iter().map(|(hint, mut lines)| {
            lines.dedup();
            match lines.len() {
                _ if self.problems.len() == 1 => hint.to_owned(),
                0 => hint.to_owned(),
                1 => format!("line {}: {hint}", lines[0]),
                _ => format!("lines {}: {hint}", lines.join(", ")),
            }
        });
        let told: Vec<String> = told.collect();
        if told.is_empty() { None } else { Some(told.join("\n")) }
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        let text = self.text.as_ref()?;
        // Without a place there is nothing to point at, and the whole file would be drawn.
        self.first().at.is_some().then_some(text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let alone = self.problems.len() == 1;
        Some(Box::new(self.problems.iter().filter_map(move |problem| {
            let at = problem.at?;
            let label = if alone { "here".to_owned() } else { problem.message.clone() };
            Some(LabeledSpan::new(Some(label), at.offset, at.length))
        })))
    }
}

/// What is drawn: like the error itself, but without the place, which the snippet's frame already names.
#[derive(Debug)]
struct View<'a>(&'a Details);

impl fmt::Display for View<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Details { file, problems, .. } = self.0;
        match (problems.len(), self.0.first().at) {
            (1, Some(_)) => write!(f, "{}", self.0.first().message),
            (1, None) => write!(f, "{file}: {}", self.0.first().message),
            (n, _) => write!(f, "{n} problems in {file}"),
        }
    }
}

impl std::error::Error for View<'_> {}

impl Diagnostic for View<'_> {
    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        self.0.help().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.0.source_code()
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        self.0.labels()
    }
}

/// Longest message. Text of the file ends up in messages, and a file may be a single word.
const LONGEST: usize = 600;

/// Text that cannot steer a terminal and does not flood it.
fn one_line(text: &str) -> String {
    let mut line: String = text
        .chars()
        .take(LONGEST)
        .flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] })
        .collect();
    if text.chars().nth(LONGEST).is_some() {
        line.push_str("...");
    }
    line
}

/// The file's text without what could steer a terminal, at unchanged byte offsets.
fn harmless(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' | '\r' | '\t' => c,
            c if c.is_control() && c.len_utf8() == 1 => '?',
            // U+00B7 takes two bytes, as every control character above ASCII does.
            c if c.is_control() => '\u{b7}',
            c => c,
        })
        .collect()
}

/// The position moved onto character boundaries inside the text, so that drawing it cannot fail.
fn within(at: Position, text: &str) -> Position {
    let floor = |mut offset: usize| {
        offset = offset.min(text.len());
        while !text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    };
    // The YAML scanner knows lines and columns of its errors, and no offsets.
    let known = at.offset > 0 || (at.line, at.column) == (1, 1);
    let offset = if known { floor(at.offset) } else { offset_of(at.line, at.column, text) };
    // A label over several lines hides what it points at; the first line is enough.
    let end = floor(offset.saturating_add(at.length)).max(offset);
    let length = text[offset..end].lines().next().map_or(0, str::len);
    Position { offset, length, ..at }
}

/// The offset in bytes of a line and a column, or of the nearest character that exists.
fn offset_of(line: u64, column: u64, text: &str) -> usize {
    let nth = |number: u64| usize::try_from(number.saturating_sub(1)).unwrap_or(usize::MAX);
    let Some((before, line)) = text
        .split_inclusive('\n')
        .scan(0, |start, line| {
            let before = *start;
            *start += line.len();
            Some((before, line))
        })
        .nth(nth(line))
    else {
        return text.len();
    };
    let line = line.trim_end_matches(['\n', '\r']);
    before + line.char_indices().nth(nth(column)).map_or(line.len(), |(offset, _)| offset)
}
