//! Line and bar charts as inline SVG. Colours and fonts come from the style sheet of the page, so that charts support
//! light and dark mode.

use std::fmt::Write;

use super::html::{escape_html, format_si};

/// Width and height of a chart in SVG units. The chart is scaled with the page.
const CHART_WIDTH: f64 = 420.0;
const CHART_HEIGHT: f64 = 240.0;
/// Margins of a chart for the axes, SVG units.
const MARGIN_LEFT: f64 = 46.0;
const MARGIN_RIGHT: f64 = 12.0;
const MARGIN_TOP: f64 = 10.0;
const MARGIN_BOTTOM: f64 = 40.0;
/// Maximum number of ticks on an axis.
const MAX_TICKS: f64 = 6.0;

/// The shape in which values are drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A line through the points.
    Line,
    /// A line through the points, with the area below it filled.
    Area,
    /// A bar for each point.
    Bars,
}

/// A named series of points, sorted by x.
pub struct Series {
    /// Name of the series, for the legend.
    pub name: String,
    /// The points, x and y.
    pub points: Vec<(f64, f64)>,
}

/// A chart with its title, note and axis titles.
pub struct Plot<'p> {
    /// Title of the chart.
    pub title: &'p str,
    /// A note below the title: what the chart shows, and which values are expected.
    pub note: String,
    /// Title of the x axis.
    pub x_title: &'p str,
    /// Title of the y axis.
    pub y_title: &'p str,
    /// Unit of the x axis, for the values that are shown at the pointer.
    pub x_unit: &'p str,
    /// Unit of the y axis, for the values that are shown at the pointer.
    pub y_unit: &'p str,
    /// Drawing style of the points.
    pub shape: Shape,
    /// Minimum and maximum of the y axis; `None`: from 0 to a maximum that is derived from the values.
    pub y_range: Option<(f64, f64)>,
    /// The series, in the order of their colours.
    pub series: Vec<Series>,
}

/// The mapping from values to SVG coordinates.
struct Scale {
    x: (f64, f64),
    y: (f64, f64),
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        MARGIN_LEFT + (value - self.x.0) / (self.x.1 - self.x.0) * (CHART_WIDTH - MARGIN_LEFT - MARGIN_RIGHT)
    }

    fn y(&self, value: f64) -> f64 {
        let share = (value - self.y.0) / (self.y.1 - self.y.0);
        CHART_HEIGHT - MARGIN_BOTTOM - share.min(1.0) * (CHART_HEIGHT - MARGIN_TOP - MARGIN_BOTTOM)
    }
}

impl Plot<'_> {
    /// Returns the chart as an HTML `figure`; an empty text if there are no values.
    pub fn to_figure(&self) -> String {
        let series: Vec<&Series> = self.series.iter().filter(|series| !series.points.is_empty()).collect();
        let Some(scale) = self.scale(&series) else { return String::new() };
        let title = escape_html(self.title);
        let mut figure = format!(
            "<figure>\n<figcaption><h3>{title}</h3><p>{}</p></figcaption>\n{}\
             <svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" role=\"img\" aria-label=\"{title}. {} by {}.\">\n",
            self.note,
            legend(&series),
            escape_html(self.y_title),
            escape_html(self.x_title)
        );
        self.write_axes(&mut figure, &scale);
        for (at, series) in series.iter().enumerate() {
            self.write_series(&mut figure, &scale, series, at);
        }
        if self.shape != Shape::Bars {
            self.write_tooltips(&mut figure, &scale, &series);
        }
        figure + "</svg>\n</figure>\n"
    }

    fn scale(&self, series: &[&Series]) -> Option<Scale> {
        let points = || series.iter().flat_map(|series| &series.points);
        let first = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let last = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let highest = points().map(|point| point.1).fold(0.0, f64::max);
        if !first.is_finite() {
            return None;
        }
        let x = match self.shape {
            Shape::Bars => (first - 0.75, last + 0.75),
            _ if first == last => (first - 1.0, last + 1.0),
            _ => (first, last),
        };
        let y = self.y_range.unwrap_or_else(|| {
            let step = tick_step(highest.max(1e-9));
            (0.0, (highest / step).ceil().max(1.0) * step)
        });
        Some(Scale { x, y })
    }

    fn write_axes(&self, svg: &mut String, scale: &Scale) {
        let (bottom, right) = (CHART_HEIGHT - MARGIN_BOTTOM, CHART_WIDTH - MARGIN_RIGHT);
        for tick in ticks(scale.y.0, scale.y.1) {
            let y = scale.y(tick);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{MARGIN_LEFT} {y:.1}H{right}\"/><text class=\"tick\" x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{}</text>",
                MARGIN_LEFT - 5.0,
                y + 3.5,
                format_si(tick)
            );
        }
        for tick in
            ticks(scale.x.0, scale.x.1).into_iter().filter(|tick| self.shape != Shape::Bars || tick.fract() == 0.0)
        {
            let x = scale.x(tick);
            let _ = writeln!(
                svg,
                "<path class=\"axis\" d=\"M{x:.1} {bottom}v4\"/><text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" \
                 text-anchor=\"middle\">{}</text>",
                bottom + 15.0,
                format_si(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{MARGIN_LEFT} {bottom}H{right}\"/>\n\
             <text class=\"title\" x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text class=\"title\" x=\"{:.1}\" y=\"11\" text-anchor=\"middle\" transform=\"rotate(-90)\">{}</text>",
            (MARGIN_LEFT + right) / 2.0,
            CHART_HEIGHT - 6.0,
            escape_html(self.x_title),
            -(MARGIN_TOP + bottom) / 2.0,
            escape_html(self.y_title)
        );
    }

    fn write_series(&self, svg: &mut String, scale: &Scale, series: &Series, at: usize) {
        if self.shape == Shape::Bars {
            let width = ((scale.x(1.0) - scale.x(0.0)) * 0.8).max(1.0);
            for (x, y) in &series.points {
                let (left, top) = (scale.x(*x) - width / 2.0, scale.y(*y));
                let height = (CHART_HEIGHT - MARGIN_BOTTOM - top).max(0.0);
                let hint = self.tooltip(*x, &[(series, *y)], false);
                let _ = writeln!(
                    svg,
                    "<rect class=\"bar s{at}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
                     height=\"{height:.1}\"><title>{hint}</title></rect>"
                );
            }
            return;
        }
        let mut path = String::new();
        for (index, (x, y)) in series.points.iter().enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if index == 0 { 'M' } else { 'L' }, scale.x(*x), scale.y(*y));
        }
        if self.shape == Shape::Area
            && let (Some(first), Some(last)) = (series.points.first(), series.points.last())
        {
            let bottom = CHART_HEIGHT - MARGIN_BOTTOM;
            let _ = writeln!(
                svg,
                "<path class=\"area s{at}\" d=\"{path}L{:.1} {bottom}L{:.1} {bottom}Z\"/>",
                scale.x(last.0),
                scale.x(first.0)
            );
        }
        let _ = writeln!(svg, "<path class=\"line s{at}\" d=\"{path}\"/>");
    }

    /// Writes invisible stripes over the chart that show the values at the mouse pointer as a tooltip.
    fn write_tooltips(&self, svg: &mut String, scale: &Scale, series: &[&Series]) {
        let Some(leading) = series.iter().max_by_key(|series| series.points.len()) else { return };
        let stripe = (CHART_WIDTH - MARGIN_LEFT - MARGIN_RIGHT) / leading.points.len() as f64;
        for (x, _) in &leading.points {
            let values: Vec<(&Series, f64)> = series
                .iter()
                .filter_map(|series| {
                    let found = series.points.binary_search_by(|point| point.0.total_cmp(x)).ok()?;
                    Some((*series, series.points[found].1))
                })
                .collect();
            let _ = writeln!(
                svg,
                "<rect class=\"hint\" x=\"{:.1}\" y=\"{MARGIN_TOP}\" width=\"{stripe:.1}\" height=\"{}\"><title>{}</title></rect>",
                scale.x(*x) - stripe / 2.0,
                CHART_HEIGHT - MARGIN_TOP - MARGIN_BOTTOM,
                self.tooltip(*x, &values, series.len() > 1)
            );
        }
    }

    fn tooltip(&self, x: f64, values: &[(&Series, f64)], named: bool) -> String {
        let value = |(series, y): &(&Series, f64)| {
            let name = if named { format!("{} ", escape_html(&series.name)) } else { String::new() };
            format!("{name}{}{}", format_si(*y), escape_html(self.y_unit))
        };
        let values: Vec<String> = values.iter().map(value).collect();
        format!("{} {}{}: {}", escape_html(self.x_title), format_si(x), escape_html(self.x_unit), values.join(", "))
    }
}

fn legend(series: &[&Series]) -> String {
    if series.len() < 2 {
        return String::new();
    }
    let items = series.iter().enumerate().map(|(at, series)| {
        format!(
            "<li><svg class=\"key\" viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"line s{at}\" d=\"M1 4H23\"/></svg>{}</li>",
            escape_html(&series.name)
        )
    });
    format!("<ul class=\"legend\">{}</ul>\n", items.collect::<String>())
}

/// Returns the distance between the ticks of an axis: 1, 2, 2.5 or 5 times a power of ten. `length`: the range of
/// values of the axis.
fn tick_step(length: f64) -> f64 {
    let rough = length / MAX_TICKS;
    let power = 10f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

fn ticks(from: f64, to: f64) -> Vec<f64> {
    let step = tick_step(to - from);
    let first = (from / step).ceil() as i64;
    (first..).map(|at| at as f64 * step).take_while(|tick| *tick <= to + step * 1e-6).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_few_round_ticks() {
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(1.0, 150.0), [25.0, 50.0, 75.0, 100.0, 125.0, 150.0]);
        assert!(ticks(0.0, 0.003).len() <= 7 && ticks(0.0, 123_456_789.0).len() <= 7);
    }

    #[test]
    fn a_plot_without_values_is_left_out() {
        let plot = Plot {
            title: "t",
            note: String::new(),
            x_title: "x",
            y_title: "y",
            x_unit: "",
            y_unit: "",
            shape: Shape::Line,
            y_range: None,
            series: vec![Series { name: "<b>".into(), points: Vec::new() }],
        };
        assert_eq!(plot.to_figure(), "");
        let series = vec![Series { name: "<b>".into(), points: vec![(1.0, 0.0)] }];
        let figure = Plot { series, ..plot }.to_figure();
        assert!(!figure.contains("NaN") && !figure.contains("inf") && !figure.contains("<b>"), "{figure}");
    }
}
