//! Pieces of HTML. Whatever comes from a file goes through [`text`] or [`name`].

use pleat_plot::escape;
use std::fmt::Write;

/// Text as it stands in HTML, in an attribute too.
pub fn text(text: &str) -> String {
    escape(text)
}

/// The same for what programs call themselves: it may change the direction of writing, and must not beyond itself.
pub fn name(text: &str) -> String {
    format!("<bdi>{}</bdi>", escape(text))
}

/// A table that scrolls within itself where it is too wide.
pub struct Table {
    html: String,
}

/// How the cells of a column are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// To the left; the first one of a row is its head.
    Words,
    /// To the right.
    Figures,
}

impl Table {
    /// A table of these columns, whose heads are HTML already; `caption` is for who hears it.
    pub fn new(caption: &str, columns: &[(Column, String)]) -> Table {
        let mut html = String::new();
        let caption = text(caption);
        let _ = write!(
            html,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table>\
             <caption class=\"heard\">{caption}</caption><thead><tr>"
        );
        for (column, head) in columns {
            let _ = write!(html, "<th scope=\"col\"{}>{head}</th>", column.class());
        }
        html += "</tr></thead><tbody>\n";
        Table { html }
    }

    /// A row, its cells as HTML.
    pub fn row(&mut self, cells: &[(Column, String)]) {
        self.html += "<tr>";
        for (at, (column, cell)) in cells.iter().enumerate() {
            let class = column.class();
            let _ = match at {
                0 => write!(self.html, "<th scope=\"row\"{class}>{cell}</th>"),
                _ => write!(self.html, "<td{class}>{cell}</td>"),
            };
        }
        self.html += "</tr>\n";
    }

    pub fn end(self) -> String {
        self.html + "</tbody></table></div>\n"
    }
}

impl Column {
    fn class(self) -> &'static str {
        match self {
            Column::Words => "",
            Column::Figures => " class=\"n\"",
        }
    }
}

/// A cell of words.
pub fn words(html: impl Into<String>) -> (Column, String) {
    (Column::Words, html.into())
}

/// A cell of figures.
pub fn figures(html: impl Into<String>) -> (Column, String) {
    (Column::Figures, html.into())
}
