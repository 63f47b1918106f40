//! Simple tables: columns under lines of `=`.

/// Columns of a table; a wider one is no table.
const COLUMNS_MAX: usize = 40;

/// Cells of a table; a larger one is no table. A line of one letter makes a cell for every column.
const CELLS_MAX: usize = 20_000;

/// Its cells as text.
pub(super) struct Table<'text> {
    pub(super) rows: Vec<Vec<std::borrow::Cow<'text, str>>>,
    /// How many of the rows are its head.
    pub(super) head_rows: usize,
    /// How many lines it has.
    pub(super) length: usize,
}

/// The starts of the columns, if this is a border of a table.
fn columns(line: &str) -> Option<Vec<usize>> {
    let is_border = line.starts_with("==")
        && line.contains(' ')
        && line.bytes().all(|byte| matches!(byte, b'=' | b' '));
    if !is_border {
        return None;
    }
    let bytes = line.as_bytes();
    let starts = (0..bytes.len())
        .filter(|&at| bytes[at] == b'=' && (at == 0 || bytes[at - 1] == b' '))
        .collect::<Vec<_>>();
    (starts.len() <= COLUMNS_MAX).then_some(starts)
}

/// The table that these lines begin with.
pub(super) fn simple<'text>(lines: &[&'text str]) -> Option<Table<'text>> {
    let starts = columns(lines[0])?;
    let mut table = Table { rows: Vec::new(), head_rows: 0, length: 1 };
    let (mut has_end, mut borders, mut is_below_border) = (false, 1, true);
    for (at, line) in lines.iter().enumerate().skip(1) {
        table.length = at + 1;
        if columns(line).is_some() {
            // The last border is followed by nothing; there are three at most.
            borders += 1;
            has_end = borders == 3 || lines.get(at + 1).is_none_or(|next| next.is_empty());
            if has_end {
                break;
            }
            table.head_rows = table.rows.len();
            is_below_border = true;
            continue;
        }
        let is_ruled = !line.is_empty() && line.bytes().all(|byte| matches!(byte, b'-' | b' '));
        if line.is_empty() || is_ruled {
            continue;
        }
        let cells = starts.iter().enumerate().map(|(column, start)| {
            let end = starts.get(column + 1).copied();
            let (start, end) = (on_character(line, *start), end.map(|end| on_character(line, end)));
            line[start..end.unwrap_or(line.len()).max(start)].trim()
        });
        let cells: Vec<&'text str> = cells.collect();
        let is_full = (table.rows.len() + 1) * starts.len() > CELLS_MAX;
        match table.rows.last_mut() {
            // A row that goes on.
            Some(row) if cells[0].is_empty() && !is_below_border => {
                for (text, more) in row.iter_mut().zip(cells).filter(|(_, more)| !more.is_empty()) {
                    let text = text.to_mut();
                    text.push(' ');
                    text.push_str(more);
                }
            }
            _ if is_full => return None,
            _ => table.rows.push(cells.into_iter().map(Into::into).collect()),
        }
        is_below_border = false;
    }
    has_end.then_some(table)
}

fn on_character(line: &str, at: usize) -> usize {
    line.floor_char_boundary(at)
}
