//! Memory over steps of all ranks, as a picture.

use plotters::prelude::*;

use super::judge::{Judged, JudgedRank, label};

/// Okabe and Ito's colours, which people with any kind of colour vision can tell apart; yellow is left out, for it is
/// hardly seen on white.
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
const GREY: RGBColor = RGBColor(170, 170, 170);

const GIB: f64 = (1_u64 << 30) as f64;
const SIZE: (u32, u32) = (1100, 540);
/// How much of the width the legend has.
const LEGEND: u32 = 250;
/// So many points have marks, because between them there is nothing.
const FEW: usize = 20;

/// Draws the points that are kept, a line per rank and part, and the device's memory where it is near.
///
/// # Errors
/// The picture cannot be drawn, which would be a mistake of torchleak's.
pub fn svg(judged: &Judged<'_>, name: &str) -> Result<String, String> {
    let mut text = String::new();
    draw(judged, name, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

fn draw(judged: &Judged<'_>, name: &str, text: &mut String) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    // The legend has room of its own, because lines can be anywhere.
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
    let mut ranks: Vec<&JudgedRank<'_>> = judged.ranks.iter().filter(|rank| rank.part().is_some()).collect();
    // Where there are more ranks than colours, those that grow most have one, and lie above the others.
    if ranks.len() > COLOURS.len() {
        ranks.sort_by(|one, other| {
            let growth = |rank: &JudgedRank<'_>| rank.growth().unwrap_or(0.0);
            growth(other).total_cmp(&growth(one))
        });
    }
    let (steps, top) = extent(&ranks);
    let capacity = ranks.iter().find_map(|rank| Some(rank.exhaustion?.capacity)).or(judged.facts.capacity);
    let capacity = capacity.map(|bytes| bytes / GIB).filter(|gib| *gib < 3.0 * top);
    let top = 1.08 * capacity.map_or(top, |gib| gib.max(top));
    let mut chart = ChartBuilder::on(&left)
        .caption(format!("Memory over steps: {name}"), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(steps.0..steps.1, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("training step")
        .y_desc("peak reserved memory [GiB]")
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|gib| if top < 2.0 { format!("{gib:.2}") } else { format!("{gib:.0}") })
        .axis_desc_style(("sans-serif", 15))
        .label_style(("sans-serif", 13))
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.12))
        .draw()?;
    let mut entries = Vec::new();
    for (index, rank) in ranks.iter().enumerate().rev() {
        let colour = COLOURS.get(index).copied().unwrap_or(GREY);
        let style = colour.stroke_width(if index < COLOURS.len() { 2 } else { 1 });
        for part in rank.track.parts() {
            let points = part.points().into_iter().map(|point| (f64::from(point.step), point.memory / GIB));
            let points: Vec<(f64, f64)> = points.collect();
            if points.len() <= FEW {
                chart.draw_series(points.iter().map(|at| Circle::new(*at, 3, colour.filled())))?;
            }
            chart.draw_series(LineSeries::new(points, style))?;
        }
        if index < COLOURS.len() {
            entries.push((style, legend(rank)));
        }
    }
    entries.reverse();
    if ranks.len() > COLOURS.len() {
        entries.push((GREY.stroke_width(1), format!("{} more ranks", ranks.len() - COLOURS.len())));
    }
    for (row, (style, text)) in (0..).zip(&entries) {
        let y = 64 + 22 * row;
        right.draw(&PathElement::new([(0, y), (22, y)], *style))?;
        right.draw(&Text::new(text.clone(), (30, y - 6), ("sans-serif", 14)))?;
    }
    if let Some(gib) = capacity {
        let style = BLACK.stroke_width(1);
        chart.draw_series(DashedLineSeries::new([(steps.0, gib), (steps.1, gib)], 8, 5, style))?;
        let y = 64 + 22 * i32::try_from(entries.len())?;
        right.draw(&PathElement::new([(0, y), (8, y)], style))?;
        right.draw(&PathElement::new([(13, y), (21, y)], style))?;
        right.draw(&Text::new(format!("device: {gib:.2} GiB"), (30, y - 6), ("sans-serif", 14)))?;
    }
    root.present()?;
    Ok(())
}

fn legend(rank: &JudgedRank<'_>) -> String {
    let name = label(rank.track.rank.as_ref());
    let trend = rank.growth().map_or_else(
        || rank.word.word().to_owned(),
        |growth| format!("+{} per step", crate::bytes::human(growth)),
    );
    format!("{name}: {trend}")
}

/// The steps and the highest level in GiB that there are.
fn extent(ranks: &[&JudgedRank<'_>]) -> ((f64, f64), f64) {
    let (mut first, mut last, mut top) = (f64::INFINITY, f64::NEG_INFINITY, 0.0_f64);
    for part in ranks.iter().flat_map(|rank| &rank.parts) {
        first = first.min(f64::from(part.first.step));
        last = last.max(f64::from(part.last.step));
        top = top.max(part.highest / GIB);
    }
    if !first.is_finite() {
        (first, last) = (0.0, 1.0);
    }
    ((first, last.max(first + 1.0)), if top > 0.0 { top } else { 1.0 })
}
