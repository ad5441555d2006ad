//! Takes out of a text what says who ran something, and where, and what must stay secret.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::{Captures, Regex, RegexBuilder};

use crate::process::without_password;

/// Words that are no one's name, though accounts are called so; replaced, they would take the sense out of
/// a text or break a program, and betray nothing where they stay.
const NOBODY: [&str; 18] = [
    "root",
    "user",
    "host",
    "admin",
    "home",
    "ubuntu",
    "debian",
    "runner",
    "torch",
    "pytorch",
    "python",
    "localhost",
    "test",
    "max",
    "min",
    "sum",
    "all",
    "any",
];
/// Shorter names and values are parts of too many other words.
const SHORTEST_NAME: usize = 3;
const SHORTEST_SECRET: usize = 6;

/// What is private, besides what any text shows by its form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Private {
    /// Folders that stand for a person.
    pub homes: BTreeSet<String>,
    pub users: BTreeSet<String>,
    pub hosts: BTreeSet<String>,
    /// Values of variables that are called a token, a password or the like.
    pub secrets: BTreeSet<String>,
    /// What the user wants to be taken out.
    pub named: BTreeSet<String>,
}

impl Private {
    /// What this machine and this process's variables tell.
    pub fn here() -> Self {
        let mut found = Self::default();
        for (name, value) in std::env::vars_os() {
            let (name, value) = (name.to_string_lossy(), value.to_string_lossy().into_owned());
            match name.as_ref() {
                "HOME" => drop(found.homes.insert(value.trim_end_matches('/').to_owned())),
                "USER" | "LOGNAME" | "SUDO_USER" => drop(found.users.insert(value)),
                "HOSTNAME" => drop(found.hosts.insert(value)),
                _ if SECRET_NAME.is_match(&name) => drop(found.secrets.insert(value)),
                _ => {}
            }
        }
        found.users.extend(found.homes.iter().filter_map(|home| Some(home.rsplit_once('/')?.1.to_owned())));
        found.hosts.insert(rustix::system::uname().nodename().to_string_lossy().into_owned());
        // Logs name a machine without its domain as often as with it.
        found
            .hosts
            .extend(found.hosts.clone().iter().filter_map(|host| Some(host.split_once('.')?.0.to_owned())));
        found
    }

    /// Learns from a text whose home folders it names: a run folder may come from another machine.
    pub fn learn(&mut self, text: &str) {
        self.users.extend(HOME_OF.captures_iter(text).map(|found| found[1].to_owned()));
    }
}

/// Replaces what is private.
#[derive(Debug)]
pub struct Redactor {
    literals: Vec<(Regex, &'static str)>,
    is_on: bool,
}

static HOME: LazyLock<Regex> = LazyLock::new(|| pattern(r"/(?:home|Users)/[A-Za-z0-9_.@-]*\w"));
/// The name in such a path, where the path begins there: below `example.org/home/` are pages.
static HOME_OF: LazyLock<Regex> = LazyLock::new(|| pattern(r"\B/(?:home|Users)/([A-Za-z0-9_.@-]*\w)"));
static SECRET_NAME: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?i)(?:token|secret|password|passwd|passphrase|credentials?|(?:api|access|private)_?key)$")
});
/// `name=value`, `name: value` and `"name": "value"`.
static ASSIGNED: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r#"(?i)\b([a-z0-9_.-]*(token|secret|password|passwd|passphrase|credentials?|(?:api|access|private)[_-]?key)\\?["']?\s*[=:]\s*\\?["']?)([^\s"',;&\\]+)"#,
    )
});
/// What is secret by its form: keys of well-known services, bearers, signed tokens, private keys.
static FORMS: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----|\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,}|sk-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|A(?:K|S)IA[0-9A-Z]{16}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)|\bBearer\s+[\w.~+/=-]{8,}",
    )
});

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("the patterns are constants, and a test uses them all")
}

impl Redactor {
    /// One that replaces what is private.
    pub fn new(private: &Private) -> Self {
        let mut literals = Vec::new();
        let mut all = |words: &BTreeSet<String>, by, shortest: usize| {
            let mut words: Vec<&String> = words.iter().filter(|word| word.len() >= shortest).collect();
            // Of two that begin alike the longer one comes first, or its rest would stay.
            words.sort_by_key(|word| std::cmp::Reverse(word.len()));
            literals.extend(words.into_iter().filter_map(|word| Some((whole(word)?, by))));
        };
        let someones = |words: &BTreeSet<String>| {
            words.iter().filter(|word| !NOBODY.contains(&word.to_lowercase().as_str())).cloned().collect()
        };
        all(&private.named, "REDACTED", 1);
        all(&private.secrets, "REDACTED", SHORTEST_SECRET);
        all(&private.homes, "~", SHORTEST_NAME);
        // In small letters, because they may stand in the name of a case.
        all(&someones(&private.hosts), "host", SHORTEST_NAME);
        all(&someones(&private.users), "user", SHORTEST_NAME);
        Self { literals, is_on: true }
    }

    /// One that leaves everything as it is.
    pub fn off() -> Self {
        Self { literals: Vec::new(), is_on: false }
    }

    /// Whether anything is replaced at all.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// One pattern of every name that is private, for what is not text; it is empty if nothing is replaced.
    pub fn pattern(&self) -> String {
        if !self.is_on {
            return String::new();
        }
        let names = self.literals.iter().map(|(word, _)| word.as_str()).chain([HOME.as_str()]);
        names.collect::<Vec<_>>().join("|")
    }

    /// The text without what is private.
    pub fn clean(&self, text: &str) -> String {
        if !self.is_on {
            return text.to_owned();
        }
        let text = FORMS.replace_all(text, "REDACTED");
        let text = ASSIGNED.replace_all(&text, assigned);
        let mut text = without_password(&text);
        for (word, by) in &self.literals {
            if let std::borrow::Cow::Owned(replaced) = word.replace_all(&text, *by) {
                text = replaced;
            }
        }
        HOME.replace_all(&text, "~").into_owned()
    }
}

/// The word where it is no part of a longer one.
fn whole(word: &str) -> Option<Regex> {
    let edge = |c: Option<char>| if c.is_some_and(|c| c.is_alphanumeric() || c == '_') { r"\b" } else { "" };
    let (first, last) = (edge(word.chars().next()), edge(word.chars().last()));
    RegexBuilder::new(&format!("{first}{}{last}", regex::escape(word))).case_insensitive(true).build().ok()
}

/// Hides an assigned value, unless it is none: a number of tokens is no secret.
fn assigned(found: &Captures<'_>) -> String {
    let value = &found[3];
    let is_count =
        found[2].eq_ignore_ascii_case("token") && value.trim_end_matches(['}', ']']).parse::<f64>().is_ok();
    let is_nothing = ["null", "none", "true", "false"]
        .iter()
        .any(|word| value.trim_end_matches(['}', ']']).eq_ignore_ascii_case(word));
    if is_count || is_nothing { found[0].to_owned() } else { format!("{}REDACTED", &found[1]) }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn set(words: &[&str]) -> BTreeSet<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    fn redactor() -> Redactor {
        Redactor::new(&Private {
            homes: set(&["/home/ada", "/data/people/ada", "/srv"]),
            users: set(&["ada", "root", "x"]),
            hosts: set(&["gpu-17.example.org", "gpu-17"]),
            secrets: set(&["correct horse", "1"]),
            named: set(&["xy"]),
        })
    }

    #[rstest]
    #[case("/home/ada/venv/bin/python", "~/venv/bin/python")]
    #[case("/data/people/ada/x.py:3", "~/x.py:3")]
    #[case("/home/grace.hopper/x and /Users/alan/y", "~/x and ~/y")]
    #[case("/srv/x, but the root of the tree", "~/x, but the root of the tree")]
    #[case("Ada logged in on GPU-17.example.org and gpu-17", "user logged in on host and host")]
    #[case("adapter ada_optimizer x 1", "adapter ada_optimizer x 1")]
    #[case("the correct horse runs by xy", "the REDACTED runs by REDACTED")]
    #[case("https://me:pw@example.org/simple", "https://hidden@example.org/simple")]
    #[case("HF_TOKEN=abc123 run", "HF_TOKEN=REDACTED run")]
    #[case(
        r#"{"api_key": "abc", "password":"12345678"}"#,
        r#"{"api_key": "REDACTED", "password":"REDACTED"}"#
    )]
    #[case(r#"{\"secret\": \"abc\"}"#, r#"{\"secret\": \"REDACTED\"}"#)]
    #[case(r#"{"tokens":256,"flops_per_token":1.5e9}"#, r#"{"tokens":256,"flops_per_token":1.5e9}"#)]
    #[case(r#"{"flops_per_token":null}"#, r#"{"flops_per_token":null}"#)]
    #[case("ghp_0123456789abcdefABCDEF and hf_0123456789abcdefABCDEF", "REDACTED and REDACTED")]
    #[case("AKIA0123456789ABCDEF eyJhbGciOiJI.eyJzdWIiOiIx.abc", "REDACTED REDACTED")]
    #[case("Authorization: Bearer abc.def-123", "Authorization: REDACTED")]
    #[case("-----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY-----", "REDACTED")]
    #[case(
        "torch.utils.checkpoint.py:1657 cf30153c4c85eb0fb1a1",
        "torch.utils.checkpoint.py:1657 cf30153c4c85eb0fb1a1"
    )]
    fn what_is_private_goes_and_the_rest_stays(#[case] text: &str, #[case] cleaned: &str) {
        assert_eq!(redactor().clean(text), cleaned);
    }

    #[test]
    fn a_text_from_another_machine_teaches_whose_it_is() {
        let mut private = Private::default();
        private.learn("/home/grace/venv/bin/python and https://example.org/home/pages");
        let cleaned =
            Redactor::new(&private).clean("grace ran /home/grace/venv/bin/python -I/home/grace/x on pages");
        assert_eq!(cleaned, "user ran ~/venv/bin/python -I~/x on pages");
    }

    #[test]
    fn redaction_can_be_turned_off() {
        assert_eq!(Redactor::off().clean("/home/ada HF_TOKEN=abc123"), "/home/ada HF_TOKEN=abc123");
    }
}
