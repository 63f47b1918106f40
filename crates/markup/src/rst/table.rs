//! Tables: drawn as a grid, as simple columns under lines of `=`, or given as cells.
//!
//! Columns are counted as they are on a screen, where some characters are two columns wide.

use unicode_width::UnicodeWidthChar;

use super::lines::dedented;

/// Columns of a table; a wider one is no table.
const COLUMNS_MAX: usize = 60;

/// Cells of a table; a larger one is no table. A line of one letter makes a cell for every column.
const CELLS_MAX: usize = 20_000;

/// Lines of a grid.
const GRID_LINES_MAX: usize = 2_000;

/// Fields between the lines of a grid, as if no cell were wider than its parts.
const FIELDS_MAX: usize = 200_000;

pub(super) struct Cell<'text> {
    pub(super) lines: Vec<&'text str>,
    /// How many columns and rows it takes.
    pub(super) columns: usize,
    pub(super) rows: usize,
}

#[derive(Default)]
pub(super) struct Table<'text> {
    pub(super) rows: Vec<Vec<Cell<'text>>>,
    /// How many of the rows and columns are its heads.
    pub(super) head_rows: usize,
    pub(super) head_columns: usize,
}

/// A table of cells without lines between them. `heads` is how many rows and columns are heads.
pub(super) fn of_cells<'text>(
    rows: Vec<Vec<Vec<&'text str>>>,
    heads: (usize, usize),
) -> Option<Table<'text>> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    if rows.is_empty() || columns > COLUMNS_MAX || rows.len() * columns > CELLS_MAX {
        return None;
    }
    let cell = |lines: Vec<&'text str>| Cell { lines, columns: 1, rows: 1 };
    let row = |mut row: Vec<Vec<&'text str>>| -> Vec<Cell<'text>> {
        row.resize(columns, Vec::new());
        row.into_iter().map(cell).collect()
    };
    let rows = rows.into_iter().map(row).collect();
    Some(Table { rows, head_rows: heads.0, head_columns: heads.1 })
}

/// How many of these lines belong to the table that they begin with, drawn well or not.
pub(super) fn length(lines: &[&str], is_grid: bool) -> usize {
    if is_grid {
        let ends = |line: &&str| !line.starts_with(['+', '|']);
        return lines.iter().position(ends).unwrap_or(lines.len());
    }
    // The last border is followed by nothing; there are three at most.
    let mut borders = 0;
    for (at, line) in lines.iter().enumerate() {
        if ruled(line, '=').is_some() {
            borders += 1;
            if borders == 3 || borders > 1 && lines.get(at + 1).is_none_or(|next| next.is_empty()) {
                return at + 1;
            }
        }
    }
    lines.iter().position(|line| line.is_empty()).unwrap_or(lines.len())
}

/// The byte at a column of a line, or its end.
fn place(line: &str, column: usize) -> usize {
    if line.is_ascii() {
        return column.min(line.len());
    }
    let mut passed = 0;
    for (at, c) in line.char_indices() {
        if passed >= column {
            return at;
        }
        passed += width(c);
    }
    line.len()
}

fn width(c: char) -> usize {
    c.width().unwrap_or(1).max(1)
}

/// The part of a line between two columns.
fn part(line: &str, start: usize, end: Option<usize>) -> &str {
    let start = place(line, start);
    let end = end.map_or(line.len(), |end| place(line, end));
    line[start..end.max(start)].trim_end()
}

/// The columns that lie under or over the rules of a line of `mark`: start and end of each.
fn ruled(line: &str, mark: char) -> Option<Vec<(usize, usize)>> {
    let is_rule = line.starts_with(mark) && line.chars().all(|c| c == mark || c == ' ');
    if !is_rule {
        return None;
    }
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for (at, c) in line.char_indices().filter(|(_, c)| *c == mark) {
        match columns.last_mut().filter(|(_, end)| *end == at) {
            Some((_, end)) => *end = at + c.len_utf8(),
            None => columns.push((at, at + 1)),
        }
    }
    Some(columns)
}

/// The table under and over lines of `=`; `None` if a text crosses the columns.
pub(super) fn simple<'text>(lines: &[&'text str]) -> Option<Table<'text>> {
    let columns = ruled(lines[0], '=').filter(|columns| columns.len() <= COLUMNS_MAX)?;
    let starts: Vec<usize> = columns.iter().map(|(start, _)| *start).collect();
    let mut table = Table::default();
    let mut row: Vec<&'text str> = Vec::new();
    for (at, line) in lines.iter().enumerate().skip(1) {
        let border = ruled(line, '=');
        if let Some(spans) = border.clone().or_else(|| ruled(line, '-')) {
            // It rules the row above it, of which it may join columns.
            if !row.is_empty() {
                table.rows.push(cells(&row, &columns, &spans)?);
                row.clear();
            }
            if border.is_some() && at + 1 < lines.len() {
                table.head_rows = table.rows.len();
            }
            continue;
        }
        let is_next = !part(line, starts[0], starts.get(1).copied()).trim().is_empty();
        if is_next && !row.is_empty() {
            table.rows.push(cells(&row, &columns, &columns)?);
            row.clear();
        }
        if !row.is_empty() || !line.is_empty() {
            row.push(line);
        }
        if (table.rows.len() + 1) * columns.len() > CELLS_MAX {
            return None;
        }
    }
    let is_closed = lines.len() > 1 && lines.last().is_some_and(|line| ruled(line, '=').is_some());
    (is_closed && row.is_empty()).then_some(table)
}

/// The cells of a row of a simple table, whose columns are joined as `spans` says.
fn cells<'text>(
    row: &[&'text str],
    columns: &[(usize, usize)],
    spans: &[(usize, usize)],
) -> Option<Vec<Cell<'text>>> {
    let mut cells = Vec::new();
    let mut at = 0;
    for (number, &(start, end)) in spans.iter().enumerate() {
        if columns.get(at).is_none_or(|column| column.0 != start) {
            return None;
        }
        let joined = columns[at..].iter().take_while(|column| column.0 < end).count();
        at += joined;
        let is_last = number + 1 == spans.len();
        let next = spans.get(number + 1).map(|next| next.0);
        for line in row {
            // Between the columns is nothing.
            if next.is_some_and(|next| !part(line, end, Some(next)).trim().is_empty()) {
                return None;
            }
        }
        let end = if is_last { None } else { Some(end) };
        let lines: Vec<&str> = row.iter().map(|line| part(line, start, end)).collect();
        cells.push(Cell { lines: dedented(&lines), columns: joined, rows: 1 });
    }
    (at == columns.len()).then_some(cells)
}

/// The table that is drawn with `+`, `-`, `|` and `=`; `None` if its lines do not meet.
pub(super) fn grid<'text>(lines: &[&'text str]) -> Option<Table<'text>> {
    if lines.len() > GRID_LINES_MAX {
        return None;
    }
    // Each character, or 'x' for the second half of a wide one.
    let drawn: Vec<Vec<u8>> = lines.iter().map(|line| screen(line)).collect();
    let wide = drawn[0].len();
    if drawn.iter().any(|line| line.len() != wide) {
        return None;
    }
    let is_rule = |byte: u8| matches!(byte, b'-' | b'=' | b'+');
    let mut rules: Vec<usize> = Vec::new();
    let mut bars = vec![false; wide];
    for (at, line) in drawn.iter().enumerate() {
        let mut has_rule = false;
        for column in (0..wide).filter(|column| line[*column] == b'+') {
            let right = line.get(column + 1).is_some_and(|byte| is_rule(*byte));
            let left = column > 0 && is_rule(line[column - 1]);
            if right || left {
                has_rule = true;
                bars[column] = true;
            }
        }
        if has_rule {
            rules.push(at);
        }
    }
    let bars: Vec<usize> = (0..wide).filter(|column| bars[*column]).collect();
    let (tall, broad) = (rules.len().checked_sub(1)?, bars.len().checked_sub(1)?);
    let is_whole = rules.last() == Some(&(drawn.len() - 1)) && bars.last() == Some(&(wide - 1));
    if tall == 0 || broad == 0 || broad > COLUMNS_MAX || tall * broad > FIELDS_MAX || !is_whole {
        return None;
    }
    // Whether the field at a row and a column has a line below it, and to its right.
    let below = |row: usize, column: usize| {
        let line = &drawn[rules[row + 1]];
        line[bars[column]..=bars[column + 1]].iter().enumerate().all(|(at, byte)| {
            let is_end = at == 0 || at == bars[column + 1] - bars[column];
            is_rule(*byte) || is_end && *byte == b'|'
        })
    };
    let right = |row: usize, column: usize| {
        let at = bars[column + 1];
        drawn[rules[row]..=rules[row + 1]].iter().enumerate().all(|(number, line)| {
            let is_end = number == 0 || number == rules[row + 1] - rules[row];
            matches!(line[at], b'|' | b'+') || is_end && is_rule(line[at])
        })
    };
    let mut taken = vec![false; tall * broad];
    let mut table = Table::default();
    for row in 0..tall {
        let mut cells = Vec::new();
        for column in 0..broad {
            if taken[row * broad + column] {
                continue;
            }
            let last_column = (column..broad).find(|&it| right(row, it))?;
            let is_ruled = |row: usize| (column..=last_column).all(|it| below(row, it));
            let last_row = (row..tall).find(|&it| is_ruled(it))?;
            for inner in row..=last_row {
                if !right(inner, last_column) {
                    return None;
                }
                for field in &mut taken[inner * broad + column..=inner * broad + last_column] {
                    if std::mem::replace(field, true) {
                        return None;
                    }
                }
            }
            let (from, to) = (bars[column] + 1, bars[last_column + 1]);
            let inner = &lines[rules[row] + 1..rules[last_row + 1]];
            let inner: Vec<&str> = inner.iter().map(|line| part(line, from, Some(to))).collect();
            cells.push(Cell {
                lines: dedented(&inner),
                columns: last_column + 1 - column,
                rows: last_row + 1 - row,
            });
        }
        table.rows.push(cells);
        let is_head = drawn[rules[row + 1]].contains(&b'=') && row + 1 < tall;
        if is_head && drawn[rules[row + 1]].iter().all(|byte| matches!(byte, b'=' | b'+')) {
            table.head_rows = row + 1;
        }
    }
    Some(table)
}

/// A byte for each column on the screen.
fn screen(line: &str) -> Vec<u8> {
    let mut columns = Vec::with_capacity(line.len());
    for c in line.chars() {
        columns.push(u8::try_from(c).unwrap_or(b'x'));
        columns.extend(std::iter::repeat_n(b'x', width(c) - 1));
    }
    columns
}

/// How values are separated.
pub(super) struct Dialect {
    pub(super) separator: char,
    pub(super) quote: char,
    pub(super) escape: Option<char>,
    /// Whether spaces after a separator are part of the value.
    pub(super) keeps_space: bool,
}

/// Rows of separated values.
pub(super) fn values(text: &str, dialect: &Dialect) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut row: Vec<String> = Vec::new();
    let mut value = String::new();
    let (mut is_quoted, mut is_new) = (false, true);
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if Some(c) == dialect.escape {
            value.extend(rest.next());
        } else if is_quoted && c == dialect.quote {
            // Twice, it stands for itself.
            match rest.next_if_eq(&dialect.quote) {
                Some(quote) => value.push(quote),
                None => is_quoted = false,
            }
        } else if is_quoted {
            value.push(c);
        } else if is_new && c == dialect.quote {
            (is_quoted, is_new) = (true, false);
        } else if c == dialect.separator {
            row.push(std::mem::take(&mut value));
            is_new = true;
        } else if c == '\n' {
            if !row.is_empty() || !value.is_empty() || !is_new {
                row.push(std::mem::take(&mut value));
                rows.push(std::mem::take(&mut row));
            }
            is_new = true;
        } else if !(is_new && c == ' ' && !dialect.keeps_space) {
            value.push(c);
            is_new = false;
        }
    }
    if !row.is_empty() || !value.is_empty() || !is_new {
        row.push(value);
        rows.push(row);
    }
    rows
}
