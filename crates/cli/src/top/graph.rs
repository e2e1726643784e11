//! A figure over time: a column for each look, the latest on the right.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// From empty to full.
const BLOCKS: [char; 9] = [
    ' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}',
    '\u{2588}',
];
const LETTERS: [char; 3] = [' ', '.', '#'];

/// Draws values from 0 to `most`; a value above 0 is seen, however small.
pub fn draw(
    buffer: &mut Buffer,
    area: Rect,
    values: &[f64],
    most: f64,
    (has_blocks, style): (bool, Style),
) {
    let letters: &[char] = if has_blocks { &BLOCKS } else { &LETTERS };
    let a_cell = letters.len() - 1;
    let values = &values[values.len().saturating_sub(usize::from(area.width))..];
    let first = area.right() - values.len() as u16;
    for (x, value) in (first..).zip(values) {
        let level = level(*value, most, usize::from(area.height) * a_cell);
        for up in 0..area.height {
            let part = level.saturating_sub(usize::from(up) * a_cell).min(a_cell);
            if part > 0 {
                let cell = &mut buffer[(x, area.bottom() - 1 - up)];
                cell.set_char(letters[part]).set_style(style);
            }
        }
    }
}

fn level(value: f64, most: f64, levels: usize) -> usize {
    if value.is_nan() || value <= 0.0 || most <= 0.0 {
        return 0;
    }
    let level = (value / most * levels as f64).round() as usize;
    level.clamp(1, levels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(values: &[f64], has_blocks: bool) -> Vec<String> {
        let area = Rect::new(0, 0, 4, 2);
        let mut buffer = Buffer::empty(area);
        draw(&mut buffer, area, values, 16.0, (has_blocks, Style::new()));
        let row = |y| (0..4).map(|x| buffer[(x, y)].symbol().to_owned()).collect();
        (0..2).map(row).collect()
    }

    #[test]
    fn columns_grow_from_the_bottom_and_the_latest_is_on_the_right() {
        assert_eq!(
            drawn(&[16.0, 0.0, 4.0], true),
            [" \u{2588}  ", " \u{2588} \u{2584}"]
        );
        assert_eq!(
            drawn(&[99.0, 9.0, 9.0, 0.01, 12.0], false),
            ["   .", "##.#"]
        );
    }

    #[test]
    fn nonsense_is_not_drawn() {
        assert_eq!(drawn(&[f64::NAN, -1.0], true), ["    ", "    "]);
    }
}
