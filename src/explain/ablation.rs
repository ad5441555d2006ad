//! Runs the variants of a case and puts beside each other what they showed.

use serde_json::json;

use super::conditions::{Condition, Switch, amounts};
use super::effect::{Leak, Shown, leaks};
use super::laws::{Law, Point, Quantity};
use super::{Bench, ExplainError};
use crate::case::{Case, CaseError, Document, Resolved};
use crate::measure::{Recording, Series};
use crate::run::CaseOutcome;

/// One value of a condition with what it showed.
#[derive(Debug, Clone)]
pub struct Row {
    pub condition: &'static str,
    /// What the case has.
    pub base: String,
    pub value: String,
    pub shown: Shown,
    /// The quantity that the value changes, with its amount.
    pub amount: Option<(Quantity, u64)>,
}

/// A condition switched in the case.
pub struct Variant<'a> {
    condition: &'a Condition,
    switch: &'a Switch,
    /// Why there is no such case, otherwise.
    case: Result<Case, CaseError>,
}

/// The arms of the case itself that collect, with the generation that each collects.
const COLLECTING: [(&str, &str); 3] =
    [("collected-gen0", "generation 0"), ("collected-gen1", "generation 1"), ("collected", "generation 2")];

/// Runs the case itself, with an arm for each generation of the collector.
pub fn base(case: &Case, document: &Document, bench: &mut Bench<'_>) -> Result<CaseOutcome, ExplainError> {
    let mut collecting = document.clone();
    let of = |generation: u8| json!({"collected": {"generation": generation}});
    collecting.set("arms", json!(["uncollected", "collected", of(0), of(1)]));
    Ok(bench.run(&[case.with_document(&collecting)?])?.remove(0))
}

/// The case with each of its conditions switched.
pub fn variants<'a>(case: &Case, document: &Document, conditions: &'a [Condition]) -> Vec<Variant<'a>> {
    let switches = conditions
        .iter()
        .flat_map(|condition| condition.switches.iter().map(move |switch| (condition, switch)));
    switches
        .map(|(condition, switch)| Variant {
            condition,
            switch,
            case: case.with_document(&switch.variant(condition, document)),
        })
        .collect()
}

/// Runs the variants in one warm host. First come the arms of the case itself that collect, then a row for each variant.
pub fn rows(
    variants: &[Variant<'_>],
    base: &CaseOutcome,
    leak: &Leak,
    bench: &mut Bench<'_>,
) -> Result<Vec<Row>, ExplainError> {
    let cases: Vec<Case> = variants.iter().filter_map(|variant| variant.case.clone().ok()).collect();
    let mut outcomes = bench.run(&cases)?.into_iter();
    let collecting = COLLECTING.into_iter().map(|(arm, value)| Row {
        condition: "collect",
        base: "never".to_owned(),
        value: value.to_owned(),
        shown: base.arm(arm).map_or_else(not_reached, |arm| leak.with_collections(&arm.recording)),
        amount: None,
    });
    let switched = variants.iter().map(|Variant { condition, switch, case }| Row {
        condition: condition.name,
        base: condition.base.clone(),
        value: switch.value.clone(),
        shown: match case {
            Ok(_) => outcomes.next().map_or_else(not_reached, |outcome| leak.beside(&outcome)),
            Err(error) => Shown::not_run(error.to_string()),
        },
        amount: switch.amount,
    });
    Ok(collecting.chain(switched).collect())
}

fn not_reached() -> Shown {
    Shown::not_run("it was not run")
}

/// How the retained bytes grow with the sizes of the case, and with its steps.
pub fn laws(rows: &[Row], base: &CaseOutcome, leak: &Leak, resolved: &Resolved) -> Vec<Law> {
    let sizes = amounts(resolved).into_iter().filter_map(|(quantity, amount)| {
        let others = rows.iter().filter_map(|row| Some((row.amount?, &row.shown)));
        let of_quantity =
            others.filter(|((of, _), shown)| *of == quantity && shown.verdict.is_some_and(leaks));
        let all = of_quantity.map(|((_, amount), shown)| (amount, shown)).chain([(amount, &leak.own)]);
        let points: Vec<Point> = all
            .filter_map(|(amount, shown)| {
                Some(Point {
                    amount,
                    retained: shown.retained? as f64,
                    predicted: shown.predicted.map(|bytes| bytes as f64),
                })
            })
            .collect();
        Law::of(quantity, &points)
    });
    sizes.chain(law_of_steps(base, leak)).collect()
}

/// What is alive in the arm that never collects, above what is alive after its first measured step.
fn law_of_steps(base: &CaseOutcome, leak: &Leak) -> Option<Law> {
    let recording: &Recording = &base.arm("uncollected")?.recording;
    let series = Series::of(recording, leak.place, base.warmup)?;
    let levels = leak.gauge.levels(&series);
    let (first_step, first_bytes) = *levels.first()?;
    let points: Vec<Point> = levels
        .iter()
        .map(|(step, bytes)| {
            let amount = u64::from(step - first_step);
            let predicted = leak.own.predicted.map(|per_step| (amount * per_step) as f64);
            Point { amount, retained: bytes - first_bytes, predicted }
        })
        .collect();
    Law::of(Quantity::Steps, &points)
}

/// The simplest switch of each condition with which the leak stays what the case says it is.
pub fn simplifications<'a>(
    variants: &[Variant<'a>],
    rows: &[Row],
    leak: &Leak,
) -> Vec<(&'static str, &'a Switch)> {
    let switched = &rows[rows.len().saturating_sub(variants.len())..];
    let staying = variants
        .iter()
        .zip(switched)
        .filter(|(variant, row)| variant.switch.simpler && leak.stays(&row.shown));
    let mut simplest: Vec<(&'static str, &Switch)> =
        staying.map(|(variant, _)| (variant.condition.name, variant.switch)).collect();
    simplest.dedup_by_key(|(condition, _)| *condition);
    simplest
}
