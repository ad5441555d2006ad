//! From bytes to a checked [`Case`].

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
};

use serde_yaml::Options;

use super::{
    Case, Origin,
    check::Context,
    error::{CaseError, Position, Problem},
    explain::explain,
    spec::Spec,
};

/// The largest file that is read, in bytes. A case is a page; this only stops mistakes.
const LARGEST: u64 = 1 << 20;

/// Reads, parses and checks the case file at `path`, with the program beside it if it names one.
///
/// # Errors
///
/// Anything that keeps the case from being run, with the file and, where one is to blame, the line.
pub fn load(path: &Path) -> Result<Case, CaseError> {
    let file = path.display().to_string();
    let bytes = read(path).map_err(|problem| CaseError::new(&file, None, vec![problem]))?;
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    // A worker runs elsewhere, so what it is told must not depend on the working directory.
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    parse(&file, &bytes, stem, Origin::File(absolute.clone()), |name| beside(&absolute, name))
}

/// Parses and checks a case that is already in memory. `program` finds the text of the file that the
/// case names.
pub(super) fn parse(
    file: &str,
    bytes: &[u8],
    stem: Option<String>,
    origin: Origin,
    program: impl FnOnce(&str) -> Result<String, Problem>,
) -> Result<Case, CaseError> {
    let text = str::from_utf8(bytes).map_err(|error| {
        CaseError::new(file, Some(&String::from_utf8_lossy(bytes)), vec![not_utf8(bytes, &error)])
    })?;
    let refuse = |problems| CaseError::new(file, Some(text), tab_behind(text, problems));
    let spec: Spec = serde_yaml::from_str_with_options_context_valid(text, options(), &Context { stem })
        .map_err(|error| refuse(explain(&error, text)))?;
    let program = match &spec.program {
        Some(name) => {
            let found = program(name).map_err(|problem| refuse(vec![problem.at(key(text, "program"))]))?;
            Some(found)
        }
        None => None,
    };
    Ok(Case { spec, source: text.to_owned(), origin, program_source: program })
}

pub(super) fn options() -> Options {
    serde_yaml::options! {
        // The file's own text is shown by the error; a second copy is not needed.
        with_snippet: false,
        strict_booleans: true,
        budget: serde_yaml::budget! {
            max_events: 20_000,
            max_nodes: 10_000,
            max_aliases: 200,
            max_anchors: 100,
            max_depth: 32,
            max_merge_keys: 100,
            max_documents: 2,
        },
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
    }
}

fn not_utf8(bytes: &[u8], error: &std::str::Utf8Error) -> Problem {
    let offset = error.valid_up_to();
    let before = String::from_utf8_lossy(&bytes[..offset]);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    let bad = bytes.get(offset).copied().unwrap_or_default();
    Problem::new(format!("byte 0x{bad:02x} is not UTF-8")).hint("save the file as UTF-8").at(Some(Position {
        line: line as u64,
        column: column as u64,
        offset,
        length: 1,
    }))
}

/// A line that is indented by a tab is what the parser stumbles over, there or on the line above or below. It does not
/// say so, and the tab looks like spaces.
fn tab_behind(text: &str, problems: Vec<Problem>) -> Vec<Problem> {
    let near =
        |line: u64| problems.iter().any(|problem| problem.at.is_some_and(|at| at.line.abs_diff(line) <= 1));
    let mut offset = 0;
    for (line, number) in text.split_inclusive('\n').zip(1..) {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(before) = line[..indent].find('\t')
            && near(number)
        {
            let at = Position { line: number, column: before as u64 + 1, offset: offset + before, length: 1 };
            let problem = Problem::new("this line is indented by a tab, which YAML does not allow");
            return vec![problem.hint("indent with spaces").at(Some(at))];
        }
        offset += line.len();
    }
    problems
}

/// The position of a key of the top level.
pub(super) fn key(text: &str, name: &str) -> Option<Position> {
    let mut offset = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if line.strip_prefix(name).is_some_and(|rest| rest.trim_start().starts_with(':')) {
            let length = line.trim_end().len();
            return Some(Position { line: index as u64 + 1, column: 1, offset, length });
        }
        offset += line.len();
    }
    None
}

/// Reads a small regular file whole.
fn read(path: &Path) -> Result<Vec<u8>, Problem> {
    use std::io::ErrorKind;
    let failed = |error: std::io::Error| {
        let problem = Problem::new(format!("the file cannot be read: {}", lower(&error)));
        match error.kind() {
            ErrorKind::NotFound => Problem::new("there is no such file")
                .hint("`torchleak list` names the shipped cases; a path ends in .yaml"),
            ErrorKind::PermissionDenied => problem.hint("check its permissions"),
            _ => problem,
        }
    };
    let kind = std::fs::metadata(path).map_err(failed)?;
    if kind.is_dir() {
        return Err(Problem::new("this is a folder, not a case file").hint("name one .yaml file in it"));
    }
    // Opening a pipe or a device could wait forever.
    if !kind.is_file() {
        return Err(Problem::new("this is not a regular file").hint("copy the case into a file"));
    }
    let mut bytes = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes)).map_err(failed)?;
    if read as u64 > LARGEST {
        let hint = "a case is a page of YAML; is this the right file?";
        return Err(Problem::new("the file is larger than 1 MiB").hint(hint));
    }
    Ok(bytes)
}

fn lower(error: &std::io::Error) -> String {
    let text = error.to_string();
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

/// The path of the program that a case file names.
pub(super) fn program_path(case: &Path, name: &str) -> PathBuf {
    case.with_file_name(name)
}

/// Reads the program beside a case file.
fn beside(case: &Path, name: &str) -> Result<String, Problem> {
    let path = program_path(case, name);
    let bytes = read(&path).map_err(|problem| {
        let message = format!("the program `{name}` cannot be used: {}", problem.message);
        Problem { message, ..problem }.hint("the program lies in the same folder as the case")
    })?;
    // A link that leads away would make a case that cannot be carried to another machine, and that
    // runs something else than what lies beside it.
    let folder = |path: &Path| path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    let home = case.parent().and_then(|parent| parent.canonicalize().ok());
    if folder(&path) != home {
        let message = format!("the program `{name}` is a link out of the case's folder");
        return Err(Problem::new(message).hint("put the file itself beside the case"));
    }
    String::from_utf8(bytes).map_err(|_| {
        Problem::new(format!("the program `{name}` is not UTF-8")).hint("save the file as UTF-8")
    })
}
