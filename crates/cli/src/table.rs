//! Lists for people: columns and pairs in plain text. Programs ask for JSON.

/// Rows below their titles, as wide as they need to be; an empty cell is a dash.
pub(super) fn columns<const COUNT: usize>(
    titles: [&str; COUNT],
    rows: &[[String; COUNT]],
) -> String {
    let titles = titles.map(str::to_owned);
    let all = || std::iter::once(&titles).chain(rows);
    let widths: [usize; COUNT] = std::array::from_fn(|at| {
        all().map(|row| cell(&row[at]).chars().count()).max().unwrap_or_default()
    });
    all().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells = row.iter().zip(widths).map(|(text, width)| format!("{:<width$}", cell(text)));
    format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
}

/// Names and values, one pair a line.
pub(super) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let line = |(name, value): &(&str, String)| format!("{name:<width$}  {}\n", cell(value));
    pairs.iter().map(line).collect()
}

/// The text of a cell: texts of users must not control the terminal.
fn cell(text: &str) -> String {
    if text.is_empty() {
        return "-".to_owned();
    }
    plain(text)
}

/// The text, so that it stays on its line and steers no terminal.
pub(super) fn plain(text: &str) -> String {
    text.chars()
        .map(|character| if character.is_control() { '\u{fffd}' } else { character })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows =
            [["a", "", "x"], ["long name", "b\u{1b}[m", ""]].map(|row| row.map(str::to_owned));
        let expected = "NAME       B     C\na          -     x\nlong name  b\u{fffd}[m  -\n";
        assert_eq!(columns(["NAME", "B", "C"], &rows), expected);
        assert_eq!(columns::<1>(["NAME"], &[]), "NAME\n");
    }

    #[test]
    fn pairs_stand_below_each_other() {
        let lines = [("user", "alice".to_owned()), ("e", String::new())];
        assert_eq!(pairs(&lines), "user  alice\ne     -\n");
    }
}
