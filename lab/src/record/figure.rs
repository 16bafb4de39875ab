//! Figures as SVG: lines over an axis, or bars side by side.
//!
//! Every figure has a title, both axes named with their unit, and a legend when
//! it shows more than one thing. Colours are those of Okabe and Ito, which
//! colour-blind readers can tell apart.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

/// What is to be drawn, and the file name without its ending.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// File name without ending.
    pub(crate) file: String,
    /// Above the figure.
    pub(crate) title: String,
    /// Name and unit of the horizontal axis.
    pub(crate) x: String,
    /// Name and unit of the vertical axis.
    pub(crate) y: String,
    /// What is drawn.
    pub(crate) plot: Plot,
}

/// The two kinds of figures.
#[derive(Clone, Debug)]
pub(crate) enum Plot {
    /// Points joined by lines.
    Lines(Vec<Line>),
    /// Bars: the groups' names, and for each set its name and a value per group.
    Bars(Vec<String>, Vec<(String, Vec<f64>)>),
}

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    /// In the legend.
    pub(crate) name: String,
    /// Its points.
    pub(crate) points: Vec<(f64, f64)>,
    /// A theory or a reference: drawn thin.
    pub(crate) thin: bool,
}

impl Line {
    /// A line of measured points.
    pub(crate) fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, thin: false }
    }

    /// A line of theory.
    pub(crate) fn theory(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, thin: true }
    }
}

impl Figure {
    /// Draws the figure into `dir` and answers the file's name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn draw(&self, dir: &Path) -> Result<String> {
        let name = format!("{}.svg", self.file);
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            area.fill(&WHITE).map_err(|error| anyhow!("{name}: {error}"))?;
            let drawn = match &self.plot {
                Plot::Lines(lines) => self.draw_lines(&area, lines),
                Plot::Bars(groups, sets) => self.draw_bars(&area, groups, sets),
            };
            drawn.map_err(|error| anyhow!("{name}: {error}"))?;
            area.present().map_err(|error| anyhow!("{name}: {error}"))?;
        }
        std::fs::write(dir.join(&name), svg)?;
        Ok(name)
    }

    fn draw_lines(&self, area: &Area<'_>, lines: &[Line]) -> Drawn {
        let points = || lines.iter().flat_map(|line| &line.points);
        let x_max = ceiling(points().map(|point| point.0));
        let y_max = ceiling(points().map(|point| point.1));
        // The legend stands below lines that end high, else above all lines.
        let ends_high = |line: &Line| line.points.last().is_some_and(|end| end.1 > 0.6 * y_max);
        let (corner, room) = if lines.iter().all(ends_high) {
            (SeriesLabelPosition::LowerRight, 1.05)
        } else {
            (SeriesLabelPosition::UpperRight, 1.05 + 0.06 * lines.len() as f64)
        };
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(66)
            .build_cartesian_2d(0.0..x_max, 0.0..y_max * room)?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_label_formatter(&tick)
            .y_label_formatter(&tick)
            .light_line_style(WHITE)
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .draw()?;
        for (index, line) in lines.iter().enumerate() {
            let style = colour(index).stroke_width(if line.thin { 1 } else { 3 });
            chart
                .draw_series(LineSeries::new(line.points.iter().copied(), style))?
                .label(&line.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 22, y)], style));
        }
        if lines.len() > 1 {
            legend(&mut chart, corner)?;
        }
        Ok(())
    }

    fn draw_bars(&self, area: &Area<'_>, groups: &[String], sets: &[(String, Vec<f64>)]) -> Drawn {
        let y_max = ceiling(sets.iter().flat_map(|(_, values)| values).copied());
        let count = groups.len() as f64;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(66)
            // Room above the bars for their values and the legend.
            .build_cartesian_2d(0.0..count, 0.0..y_max * 1.2)?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(WHITE)
            // A label would stand at each whole number; the groups' names stand between.
            .x_labels(0)
            .x_desc(&self.x)
            .y_desc(&self.y)
            .y_label_formatter(&tick)
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 15))
            .draw()?;
        let width = 0.8 / sets.len().max(1) as f64;
        for (index, (name, values)) in sets.iter().enumerate() {
            let fill = colour(index).filled();
            let bar = |(group, &value): (usize, &f64)| {
                let left = group as f64 + 0.1 + width * index as f64;
                Rectangle::new([(left, 0.0), (left + width * 0.94, value)], fill)
            };
            chart
                .draw_series(values.iter().enumerate().map(bar))?
                .label(name)
                .legend(move |(x, y)| Rectangle::new([(x, y - 6), (x + 22, y + 6)], fill));
            let small = (FONT, 13).into_font().color(&BLACK);
            chart.draw_series(values.iter().enumerate().map(|(group, &value)| {
                let left = group as f64 + 0.1 + width * index as f64;
                EmptyElement::at((left, value)) + Text::new(short(value), (2, -15), small.clone())
            }))?;
        }
        let style = (FONT, 14).into_font().color(&BLACK);
        chart.draw_series(groups.iter().enumerate().map(|(group, name)| {
            EmptyElement::at((group as f64 + 0.1, 0.0))
                + Text::new(name.clone(), (2, 6), style.clone())
        }))?;
        if sets.len() > 1 {
            legend(&mut chart, SeriesLabelPosition::UpperRight)?;
        }
        Ok(())
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;
type Axes =
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>;

fn legend<'a>(
    chart: &mut ChartContext<'a, SVGBackend<'a>, Axes>,
    corner: SeriesLabelPosition,
) -> Drawn {
    chart
        .configure_series_labels()
        .position(corner)
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.4))
        .label_font((FONT, 14))
        .draw()?;
    Ok(())
}

fn colour(index: usize) -> RGBColor {
    const COLOURS: [RGBColor; 7] = [
        RGBColor(0, 114, 178),
        RGBColor(230, 159, 0),
        RGBColor(0, 158, 115),
        RGBColor(213, 94, 0),
        RGBColor(86, 180, 233),
        RGBColor(204, 121, 167),
        RGBColor(90, 90, 90),
    ];
    COLOURS[index % COLOURS.len()]
}

fn ceiling(values: impl Iterator<Item = f64>) -> f64 {
    let max = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
    if max > 0.0 { max } else { 1.0 }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the shape that plotters asks for")]
fn tick(value: &f64) -> String {
    if value.fract().abs() < 1e-9 { format!("{value:.0}") } else { format!("{value:.1}") }
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.1}") }
}

const SIZE: (u32, u32) = (900, 480);
const FONT: &str = "sans-serif";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_names_its_axes_and_its_lines() {
        let dir = tempfile::tempdir().unwrap();
        let figure = Figure {
            file: "f".to_owned(),
            title: "Title here".to_owned(),
            x: "time, s".to_owned(),
            y: "rate, Mbit/s".to_owned(),
            plot: Plot::Lines(vec![
                Line::measured("one", vec![(0.0, 1.0), (1.0, 2.0)]),
                Line::theory("two", vec![(0.0, f64::NAN)]),
            ]),
        };
        let svg =
            std::fs::read_to_string(dir.path().join(figure.draw(dir.path()).unwrap())).unwrap();
        for text in ["Title here", "time, s", "rate, Mbit/s", "one", "two"] {
            assert!(svg.contains(text), "{text}");
        }
    }

    #[test]
    fn bars_of_nothing_draw_an_empty_figure() {
        let dir = tempfile::tempdir().unwrap();
        let plot = Plot::Bars(vec!["g".to_owned()], vec![("s".to_owned(), vec![0.0])]);
        let text = String::new;
        let figure = Figure { file: "f".to_owned(), title: text(), x: text(), y: text(), plot };
        figure.draw(dir.path()).unwrap();
    }
}
