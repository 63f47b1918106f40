//! A small chart on a page: one line, as SVG without style of its own.

/// Width and height of a chart, in its own units.
const SIZE: (f64, f64) = (240.0, 40.0);

/// The points of a line within 240 units by 40, the last value at the right, each `step` units from the next. A line of zeros, or of
/// values that are all below one, does not fill the height.
pub(crate) fn points(values: &[f64], step: f64) -> String {
    points_below(values, step, values.iter().copied().fold(1.0, f64::max))
}

/// The points of a line that fills the height where a value is `most`, for several lines of one scale.
pub(crate) fn points_below(values: &[f64], step: f64, most: f64) -> String {
    let height_of = |value: f64| SIZE.1 - 1.0 - (SIZE.1 - 2.0) * value / most;
    let from = SIZE.0 - step * (values.len() as f64 - 1.0);
    let place = |(at, value): (usize, &f64)| {
        let across = from + step * at as f64;
        // Added to zero, so that it is never `-0`.
        format!("{},{:.1}", 0.0 + (across * 10.0).round() / 10.0, height_of(*value))
    };
    values.iter().enumerate().map(place).collect::<Vec<_>>().join(" ")
}

/// The step with which so many values fill the width.
pub(crate) fn step_of(count: usize) -> f64 {
    SIZE.0 / (count.max(2) - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_the_right_and_stays_within_its_height() {
        assert_eq!(points(&[0.0, 4.0, 2.0], 1.0), "238,39.0 239,1.0 240,20.0");
        assert_eq!(points(&[], 1.0), "");
        assert_eq!(points(&[0.5], 1.0), "240,20.0");
        assert_eq!(points(&[0.0, 0.0, 3.0], step_of(3)), "0,39.0 120,39.0 240,1.0");
        assert!(points(&[0.0; 30], step_of(30)).starts_with("0,39.0 8.3,39.0"));
        let many = points(&[0.0; 90], step_of(90));
        assert!(many.starts_with("0,39.0 2.7,39.0") && many.ends_with(" 240,39.0"), "{many}");
    }
}
