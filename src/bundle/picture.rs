//! Memory over steps, and what collections freed, as pictures.

use std::error::Error;
use std::sync::Arc;

use epaint_default_fonts::UBUNTU_LIGHT;
use plotters::prelude::*;
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg;

use super::measured::Curve;
use crate::titan::COLOURS;

const SIZE: (u32, u32) = (760, 400);
/// A PNG has twice the dots, for screens that show them.
const SCALE: f32 = 2.0;
const MARK: u32 = 3;
/// How much of the height stays free at an edge: a line on it is hardly seen.
const EDGE: f64 = 0.06;

/// Memory over steps of all arms.
///
/// # Errors
/// The picture cannot be drawn, which would be a mistake of torchleak's.
pub fn memory(curves: &[Curve]) -> Result<String, Box<dyn Error>> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let frame = Frame::around(points(), "above the level after the warm-up");
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = frame.chart(&area)?;
        for (curve, colour) in curves.iter().zip(COLOURS.iter().cycle()) {
            let points: Vec<(f64, f64)> =
                curve.points.iter().map(|(step, bytes)| (*step, bytes / frame.unit)).collect();
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.clone(), style))?
                .label(&curve.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, MARK, colour.filled())))?;
        }
        legend(&mut chart)?;
        area.present()?;
    }
    Ok(svg)
}

/// What each collection freed, beside what was predicted.
///
/// # Errors
/// As [`memory`].
pub fn freed(points: &[(f64, f64)], predicted: Option<u64>) -> Result<String, Box<dyn Error>> {
    let predicted = predicted.map(|bytes| bytes as f64);
    let last = points.iter().map(|(step, _)| *step).fold(1.0, f64::max);
    let line = predicted.map(|bytes| [(0.5, bytes), (last + 0.5, bytes)]);
    // Above the bars is the legend.
    let highest = points.iter().map(|(_, bytes)| *bytes).fold(predicted.unwrap_or(0.0), f64::max);
    let ends = [(0.5, 0.0), (last + 0.5, 1.2 * highest)];
    let frame =
        Frame::around(points.iter().chain(line.iter().flatten()).chain(&ends), "freed by the collection");
    let mut svg = String::new();
    {
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = frame.chart(&area)?;
        // A bar that is lower than a dot is none, and what draws the dots would complain of it.
        let dot = (frame.bytes.1 - frame.bytes.0) * frame.unit / f64::from(SIZE.1);
        let bars = points.iter().filter(|(_, bytes)| bytes.abs() > dot);
        chart.draw_series(bars.map(|(step, bytes)| {
            Rectangle::new([(step - 0.3, 0.0), (step + 0.3, bytes / frame.unit)], COLOURS[0].filled())
        }))?;
        if let Some(line) = line {
            let line = line.map(|(step, bytes)| (step, bytes / frame.unit));
            let style = COLOURS[1].stroke_width(2);
            chart
                .draw_series(DashedLineSeries::new(line, 8, 5, style))?
                .label("predicted")
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
            legend(&mut chart)?;
        }
        area.present()?;
    }
    Ok(svg)
}

/// The steps and bytes that a picture has room for.
struct Frame {
    steps: (f64, f64),
    /// In units.
    bytes: (f64, f64),
    unit: f64,
    name: &'static str,
    what: &'static str,
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

impl Frame {
    fn around<'a>(points: impl Iterator<Item = &'a (f64, f64)>, what: &'static str) -> Self {
        let (mut steps, mut bytes) = ((f64::INFINITY, 1.0_f64), (0.0_f64, 0.0_f64));
        for (step, level) in points {
            steps = (steps.0.min(*step), steps.1.max(*step));
            bytes = (bytes.0.min(*level), bytes.1.max(*level));
        }
        let first = steps.0.min(steps.1 - 1.0);
        let span = (bytes.1 - bytes.0).max(1.0);
        let units = [("B", 1.0), ("KiB", 1024.0), ("MiB", 1_048_576.0), ("GiB", 1_073_741_824.0)];
        let (name, unit) = units.into_iter().rev().find(|(_, unit)| span >= *unit).unwrap_or(units[0]);
        let room = EDGE * span;
        let low = if bytes.0 < 0.0 { bytes.0 - room } else { 0.0 };
        Self { steps: (first, steps.1), bytes: (low / unit, (bytes.1 + room) / unit), unit, name, what }
    }

    fn chart<'a, 'b>(
        &self,
        area: &'a DrawingArea<SVGBackend<'b>, plotters::coord::Shift>,
    ) -> Result<Chart<'a, 'b>, Box<dyn Error>> {
        let mut chart = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(42)
            .y_label_area_size(66)
            .build_cartesian_2d(self.steps.0..self.steps.1, self.bytes.0..self.bytes.1)?;
        let digits = if self.bytes.1 - self.bytes.0 < 8.0 { 1 } else { 0 };
        chart
            .configure_mesh()
            .x_desc("training step")
            .y_desc(format!("{} {}", self.name, self.what))
            .x_labels((self.steps.1 - self.steps.0) as usize + 1)
            .x_label_formatter(&|step| if step.fract() == 0.0 { format!("{step:.0}") } else { String::new() })
            .y_label_formatter(&|bytes| format!("{bytes:.digits$}"))
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .draw()?;
        Ok(chart)
    }
}

/// Draws the names of what the chart has, in its upper left corner.
fn legend<'a, 'b: 'a>(chart: &mut Chart<'a, 'b>) -> Result<(), Box<dyn Error>> {
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .margin(8)
        .background_style(WHITE)
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 14))
        .draw()?;
    Ok(())
}

/// A picture in dots. Its letters come with torchleak, so that they are there on a machine without fonts.
///
/// # Errors
/// The picture cannot be drawn, which would be a mistake of torchleak's.
pub fn png(svg: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut options = usvg::Options::default();
    let fonts = Arc::make_mut(&mut options.fontdb);
    fonts.load_font_data(UBUNTU_LIGHT.to_vec());
    let family = fonts.faces().next().and_then(|face| Some(face.families.first()?.0.clone()));
    fonts.set_sans_serif_family(family.ok_or("the font has no name")?);
    let tree = usvg::Tree::from_str(svg, &options)?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or("the picture has no size")?;
    let mut pixels = Pixmap::new(size.width(), size.height()).ok_or("the picture has no size")?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    Ok(pixels.encode_png()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dots(svg: &str) -> Pixmap {
        Pixmap::decode_png(&png(svg).unwrap()).unwrap()
    }

    #[test]
    fn a_picture_has_letters_also_where_no_font_is_installed() {
        let curve = Curve { name: "uncollected".to_owned(), points: vec![(1.0, 0.0), (2.0, 2048.0)] };
        let svg = memory(&[curve]).unwrap();
        let with_letters = dots(&svg);
        let without = dots(&regex::Regex::new("(?s)<text.*?</text>").unwrap().replace_all(&svg, ""));
        assert_eq!((with_letters.width(), with_letters.height()), (1520, 800));
        let differ = with_letters.pixels().iter().zip(without.pixels()).filter(|(one, other)| one != other);
        assert!(differ.count() > 2000, "no letters were drawn");
    }

    #[test]
    fn nothing_measured_still_makes_a_picture() {
        assert!(memory(&[]).unwrap().contains("</svg>"));
        assert!(freed(&[], Some(1024)).unwrap().contains("</svg>"));
    }

    #[test]
    fn a_name_from_outside_cannot_become_markup() {
        let curve = Curve { name: "<script>".to_owned(), points: vec![(1.0, 0.0)] };
        assert!(!memory(&[curve]).unwrap().contains("<script>"));
    }
}
