//! What the runs of one candidate come to: good, bad, or unknown with the reason.

use serde::{Deserialize, Serialize};

use super::Cell;
use super::search::Answer;
use crate::case::Verdict;

/// One attempt to run the case on one candidate, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The name of the candidate.
    pub candidate: String,
    /// The identity of the candidate: runs of equal identities are runs of the same PyTorch.
    pub identity: String,
    /// Whether it is a second look at a candidate that the conclusion stands on.
    pub recheck: bool,
    pub shown: Shown,
}

/// What an attempt showed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Shown {
    /// The case was run.
    Cell(Box<Cell>),
    /// It could not be run there.
    Unavailable {
        reason: String,
        /// Whether it would be so the next time too. A full disk or a network that is down passes.
        lasting: bool,
    },
}

impl Shown {
    pub fn cell(&self) -> Option<&Cell> {
        match self {
            Self::Cell(cell) => Some(cell),
            Self::Unavailable { .. } => None,
        }
    }

    /// What this one run says. An expected `error` is no verdict either.
    pub fn answer(&self) -> Answer {
        match self.cell().and_then(|cell| cell.verdict) {
            Some(Verdict::Fixed) => Answer::Good,
            Some(Verdict::Reproduced | Verdict::Uncollectable | Verdict::OneOff) => Answer::Bad,
            Some(Verdict::Inconclusive | Verdict::Error) | None => Answer::Unknown,
        }
    }

    /// Why.
    pub fn reason(&self) -> &str {
        match self {
            Self::Cell(cell) => &cell.reason,
            Self::Unavailable { reason, .. } => reason,
        }
    }

    /// The verdict in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Cell(cell) => cell.verdict.map_or("skipped", Verdict::word),
            Self::Unavailable { .. } => "unavailable",
        }
    }
}

/// What the runs of one candidate come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// It takes another run to tell.
    RunAgain,
    /// This is the answer, with the reason.
    Is(Answer, String),
}

/// Tells a candidate by its runs, in their order.
///
/// With `confirm` 1 the first verdict counts, and a run that is `inconclusive` is repeated once, because noise is its
/// most frequent cause. With more, two runs must show the same, of at most so many.
pub fn tell(runs: &[&Shown], confirm: u8) -> Told {
    let Some(last) = runs.last() else { return Told::RunAgain };
    let of = |answer| runs.iter().filter(move |shown| shown.answer() == answer);
    let agreeing = if confirm > 1 { 2 } else { 1 };
    for answer in [Answer::Good, Answer::Bad] {
        if of(answer).count() >= agreeing
            && let Some(shown) = of(answer).next_back()
        {
            return Told::Is(answer, shown.reason().to_owned());
        }
    }
    // Without an environment, or on a device that the case is not about, a second run shows nothing new.
    if last.cell().is_none_or(|cell| cell.verdict.is_none()) {
        return Told::Is(Answer::Unknown, last.reason().to_owned());
    }
    if confirm <= 1 {
        let inconclusive = last.cell().and_then(|cell| cell.verdict) == Some(Verdict::Inconclusive);
        return match (inconclusive, runs.len()) {
            (true, 1) => Told::RunAgain,
            (true, _) => Told::Is(Answer::Unknown, format!("run twice: {}", last.reason())),
            (false, _) => Told::Is(Answer::Unknown, last.reason().to_owned()),
        };
    }
    if of(Answer::Unknown).count() > 1 {
        return Told::Is(Answer::Unknown, format!("two runs told nothing: {}", last.reason()));
    }
    if runs.len() < usize::from(confirm) {
        return Told::RunAgain;
    }
    let words: Vec<&str> = runs.iter().map(|shown| shown.word()).collect();
    Told::Is(Answer::Unknown, format!("{} runs disagreed: {}", counted(runs.len()), words.join(", ")))
}

fn counted(runs: usize) -> String {
    if runs == 2 { "two".to_owned() } else { runs.to_string() }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use torchleak_protocol::Device;

    use super::*;

    fn run(letter: char) -> Shown {
        let verdict = match letter {
            'u' => return Shown::Unavailable { reason: "no wheel".to_owned(), lasting: true },
            'f' => Some(Verdict::Fixed),
            'r' => Some(Verdict::Reproduced),
            'c' => Some(Verdict::Uncollectable),
            'o' => Some(Verdict::OneOff),
            'i' => Some(Verdict::Inconclusive),
            'e' => Some(Verdict::Error),
            _ => None,
        };
        Shown::Cell(Box::new(Cell {
            case: "case".to_owned(),
            label: "2.8.0".to_owned(),
            torch: "2.8.0+cpu".to_owned(),
            torch_commit: None,
            overlay: None,
            python: "3.12.1".to_owned(),
            device: Device::Cpu,
            verdict,
            reason: format!("because {letter}"),
            expected: verdict,
            ok: true,
            growth: None,
            seconds: 1.0,
            run_dir: None,
            cached: false,
        }))
    }

    fn told(runs: &str, confirm: u8) -> String {
        let runs: Vec<Shown> = runs.chars().map(run).collect();
        match tell(&runs.iter().collect::<Vec<_>>(), confirm) {
            Told::RunAgain => "again".to_owned(),
            Told::Is(answer, reason) => format!("{}: {reason}", answer.word()),
        }
    }

    #[rstest]
    #[case("", 1, "again")]
    #[case("f", 1, "good: because f")]
    #[case("r", 1, "bad: because r")]
    #[case("c", 1, "bad: because c")]
    #[case("o", 1, "bad: because o")]
    #[case("e", 1, "unknown: because e")]
    #[case("s", 1, "unknown: because s")]
    #[case("u", 1, "unknown: no wheel")]
    fn the_first_verdict_counts(#[case] runs: &str, #[case] confirm: u8, #[case] is: &str) {
        assert_eq!(told(runs, confirm), is);
    }

    #[rstest]
    #[case("i", 1, "again")]
    #[case("if", 1, "good: because f")]
    #[case("ii", 1, "unknown: run twice: because i")]
    #[case("ie", 1, "unknown: because e")]
    fn an_inconclusive_run_is_repeated_once(#[case] runs: &str, #[case] confirm: u8, #[case] is: &str) {
        assert_eq!(told(runs, confirm), is);
    }

    #[rstest]
    #[case("f", 2, "again")]
    #[case("ff", 2, "good: because f")]
    #[case("fr", 2, "unknown: two runs disagreed: fixed, reproduced")]
    #[case("fr", 3, "again")]
    #[case("frr", 3, "bad: because r")]
    #[case("rc", 2, "bad: because c")]
    #[case("fir", 3, "unknown: 3 runs disagreed: fixed, inconclusive, reproduced")]
    #[case("fi", 2, "unknown: two runs disagreed: fixed, inconclusive")]
    #[case("e", 3, "again")]
    #[case("ee", 3, "unknown: two runs told nothing: because e")]
    #[case("u", 3, "unknown: no wheel")]
    #[case("s", 3, "unknown: because s")]
    fn with_confirm_two_runs_must_agree(#[case] runs: &str, #[case] confirm: u8, #[case] is: &str) {
        assert_eq!(told(runs, confirm), is);
    }

    #[test]
    fn what_was_kept_is_read_back_as_it_was() {
        for letter in "frcoiesu".chars() {
            let kept = Run {
                candidate: "a".to_owned(),
                identity: "b".to_owned(),
                recheck: true,
                shown: run(letter),
            };
            let text = serde_json::to_string(&kept).unwrap();
            assert_eq!(serde_json::from_str::<Run>(&text).unwrap(), kept);
        }
    }
}
