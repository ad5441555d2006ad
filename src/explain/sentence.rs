//! What an ablation found, in the sentences that an issue needs.

use super::{Effect, Explanation, Law, Line, Row};
use crate::case::Verdict;

/// The finding in a few sentences. `torch` is the version that it was made on.
pub fn sentence(explanation: &Explanation, torch: &str) -> String {
    let case = &explanation.base.name;
    let Some(retained) = explanation.own.as_ref().and_then(|own| own.retained) else {
        let (verdict, so) = match explanation.base.verdict() {
            Some(verdict) if verdict.is_conclusive() => (verdict.word(), "there is no leak to explain"),
            Some(verdict) => (verdict.word(), "nothing can be explained"),
            None => ("without a verdict", "nothing can be explained"),
        };
        return format!("On torch {torch} {case} is {verdict}, so {so}: {}.", explanation.base.reason());
    };
    let until = match explanation.base.verdict() {
        Some(Verdict::Uncollectable) => "and no collect frees them",
        _ => "until the collector runs",
    };
    let mut text = format!("On torch {torch} {case} retains {retained} bytes per step {until}.");
    let mut add = |before: &str, told: Vec<String>| {
        if !told.is_empty() {
            text.push_str(&format!(" {before}: {}.", told.join("; ")));
        }
    };
    let rows = &explanation.rows;
    add("It needs", gone(rows));
    add("It changes with", changes(rows));
    add("It scales", explanation.laws.iter().map(law_words).collect());
    add("What it retains per step does not depend on", listed(rows, Effect::None));
    add("Not known", listed(rows, Effect::Unknown));
    if !explanation.has_model && !explanation.interrupted {
        text.push_str(" The case has a program of its own, whose conditions only its author can switch.");
    }
    text
}

/// Each condition once, with the values without which the leak is gone.
fn gone(rows: &[Row]) -> Vec<String> {
    per_condition(rows, Effect::Necessary, |condition, base, values| {
        format!("{condition} = {base} (gone with {})", either(values))
    })
}

/// Each condition that is no size of a law, with what is retained otherwise.
fn changes(rows: &[Row]) -> Vec<String> {
    let rows = rows.iter().filter(|row| row.amount.is_none() && row.shown.effect == Effect::Scales);
    rows.map(|row| {
        let bytes = row.shown.retained.unwrap_or(0);
        format!("{} ({bytes} bytes with {} instead of {})", row.condition, row.value, row.base)
    })
    .collect()
}

fn listed(rows: &[Row], effect: Effect) -> Vec<String> {
    per_condition(rows, effect, |condition, base, values| {
        let all: Vec<&str> = [base].into_iter().chain(values.iter().copied()).collect();
        format!("{condition} ({})", either(&all))
    })
}

fn per_condition(rows: &[Row], effect: Effect, tell: impl Fn(&str, &str, &[&str]) -> String) -> Vec<String> {
    rows.chunk_by(|one, next| one.condition == next.condition)
        .filter_map(|rows| {
            let with_effect = rows.iter().filter(|row| row.shown.effect == effect);
            let values: Vec<&str> = with_effect.map(|row| row.value.as_str()).collect();
            let first = rows.first().filter(|_| !values.is_empty())?;
            Some(tell(first.condition, &first.base, &values))
        })
        .collect()
}

fn either(values: &[&str]) -> String {
    match values {
        [others @ .., last] if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        values => values.concat(),
    }
}

/// A law in words.
pub fn law_words(law: &Law) -> String {
    let (quantity, unit) = law.quantity.words();
    if !law.is_linear() {
        return format!("not linearly with {quantity} (a line misses a point by {:.0} bytes)", law.residual);
    }
    let line = |line: Line| {
        let is_proportional = line.fixed.abs() <= law.residual;
        let besides =
            if is_proportional { String::new() } else { format!(" besides {:.0} bytes", line.fixed) };
        format!("{:.0} bytes per {unit}{besides}", line.per_unit)
    };
    let apart = match law.residual {
        0.0 => "to the byte".to_owned(),
        apart => format!("within {apart:.0} bytes"),
    };
    // How well a line fits must not read as how well the prediction does.
    let how = match law.predicted {
        Some(predicted) if law.is_as_predicted() => format!("predicted {:.0}; {apart}", predicted.per_unit),
        Some(predicted) => format!("not as predicted: {}; a line fits {apart}", line(predicted)),
        None => format!("nothing predicted; a line fits {apart}"),
    };
    format!("with {quantity} by {} ({how})", line(law.fitted))
}
