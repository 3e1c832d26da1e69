//! The pictures of the documentation, as SVG that is legible on a white and on a dark page.
//!
//! A crate for charts would put its colours into each element, and a picture that follows the colour scheme of the reader needs them
//! in a style sheet. Bars, lines and text are all that is needed here.

pub(crate) mod memory;
pub(crate) mod restart;
pub(crate) mod rolling;

use std::fmt::{Display, Write};

use crate::table::rounded;

/// The width of what is drawn. With the margins it is that of a page.
const WIDTH: f64 = 860.0;
const MARGIN: f64 = 10.0;

/// Blue and orange differ for every kind of colour vision, and all else is grey.
const STYLE: &str = "
    rect { shape-rendering: crispEdges }
    text { fill: #1f2328 }
    .title { font-size: 17px; font-weight: 600 }
    .strong { font-weight: 600 }
    .faint { fill: #59636e; font-size: 13px }
    .grid { stroke: #d1d9e0 }
    .axis { stroke: #818b98 }
    .limit { stroke: #bc4c00; stroke-width: 2; stroke-dasharray: 6 4 }
    .limit-text { fill: #bc4c00 }
    .grey { fill: #afb8c1 }
    .grey-dark { fill: #6e7781 }
    .blue { fill: #54aeff }
    .blue-dark { fill: #0550ae }
    .orange { fill: #fb8f44 }
    .orange-dark { fill: #953800 }
    .pale { fill: #ddf4ff }
    .ink { stroke: #1f2328; stroke-width: 1.5 }
    .halo { stroke: #ffffff; stroke-width: 4.5 }
    @media (prefers-color-scheme: dark) {
      text { fill: #f0f6fc }
      .faint { fill: #9198a1 }
      .grid { stroke: #3d444d }
      .axis { stroke: #656c76 }
      .limit { stroke: #f0883e }
      .limit-text { fill: #f0883e }
      .grey { fill: #656c76 }
      .grey-dark { fill: #b7bdc8 }
      .blue { fill: #1f6feb }
      .blue-dark { fill: #a5d6ff }
      .orange { fill: #bd561d }
      .orange-dark { fill: #ffc680 }
      .pale { fill: #121d2f }
      .ink { stroke: #f0f6fc }
      .halo { stroke: #0d1117 }
    }
  ";

/// A picture that is being drawn. Later elements are above earlier ones.
#[derive(Default)]
struct Svg(String);

/// Where a text is from its point.
#[derive(Clone, Copy)]
enum Anchor {
    Start,
    Middle,
    End,
}

impl Svg {
    fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: impl Display) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let (text, [x, y]) = (escaped(&text.to_string()), [x, y].map(rounded));
        self.element(format_args!("<text{} x=\"{x}\" y=\"{y}\"{anchor}>{text}</text>", of(class)));
    }

    /// What matters, and after it what matters less.
    fn pair(&mut self, (x, y): (f64, f64), strong: &str, faint: &str) {
        let [x, y] = [x, y].map(rounded);
        let faint = format!("<tspan class=\"faint\" dx=\"8\" font-weight=\"400\">{}</tspan>", escaped(faint));
        self.element(format_args!("<text class=\"strong\" x=\"{x}\" y=\"{y}\">{}{faint}</text>", escaped(strong)));
    }

    /// A filled rectangle. What is too narrow to be seen is a pixel wide.
    fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        let [x, y, width, height] = [x, y, width.max(1.0), height].map(rounded);
        self.element(format_args!("<rect{} x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>", of(class)));
    }

    /// A line through these points.
    fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{} {}", rounded(*x), rounded(*y))).collect();
        self.element(format_args!("<path{} fill=\"none\" d=\"M{}\"/>", of(class), points.join("L")));
    }

    fn element(&mut self, element: impl Display) {
        let _ = writeln!(self.0, "  {element}");
    }

    /// Returns the whole file.
    fn file(self, height: f64, title: &str, description: &str) -> String {
        let [left, width, height] = [-MARGIN, WIDTH + 2.0 * MARGIN, height].map(rounded);
        let [title, description] = [title, description].map(escaped);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"{left} 0 {width} {height}\" role=\"img\" \
             aria-labelledby=\"title desc\" font-family=\"system-ui, sans-serif\" font-size=\"14\">\n  \
             <title id=\"title\">{title}</title>\n  <desc id=\"desc\">{description}</desc>\n  \
             <style>{STYLE}</style>\n{}</svg>\n",
            self.0
        )
    }
}

fn of(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Returns a number with commas between thousands.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|group| str::from_utf8(group).ok()).collect();
    groups.join(",")
}
