//! Formatting of text and numbers for HTML.

/// Escapes the special characters of HTML. The result may be used in elements and in quoted attributes.
pub fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            character if character.is_control() => safe.push(' '),
            character => safe.push(character),
        }
    }
    safe
}

/// Formats a number with commas between groups of three digits.
pub fn format_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a number with an SI prefix for the axes of plots, for example `1.5k` or `20M`.
pub(super) fn format_si(value: f64) -> String {
    let (scaled, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{scaled:.2}");
    format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_name_is_taken_for_html() {
        let safe = escape_html("<script>alert(\"x\")</script> & 'y'\n");
        assert_eq!(safe, "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &amp; &#39;y&#39; ");
    }

    #[test]
    fn numbers_are_grouped_and_shortened() {
        assert_eq!([0, 999, 1000, 1_234_567].map(format_thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0.0, 0.25, 1500.0, 20_000.0, 2.5e6].map(format_si), ["0", "0.25", "1500", "20k", "2.5M"]);
    }
}
