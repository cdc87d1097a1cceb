//! Wraps long lines of text for terminals.

/// Maximum number of characters in a line, including its margin.
const LINE_WIDTH: usize = 96;

/// Wraps text into lines of at most [`LINE_WIDTH`] characters, at spaces outside of backticks. The first line has
/// `margin` spaces and `mark` before the text; further lines are indented by the same width.
pub fn wrap_text(text: &str, mark: &str, margin: usize) -> String {
    let mut lines = vec![format!("{:margin$}{mark}", "")];
    let (mut words, mut in_command): (Vec<String>, bool) = (Vec::new(), false);
    for word in text.split(' ') {
        match words.last_mut() {
            Some(last) if in_command => *last = format!("{last} {word}"),
            _ => words.push(word.to_owned()),
        }
        in_command ^= word.matches('`').count() % 2 == 1;
    }
    let mut is_start = true;
    for word in words {
        let line = lines.last_mut().expect("there is one from the start");
        if is_start || line.chars().count() + 1 + word.chars().count() <= LINE_WIDTH {
            *line += if is_start { "" } else { " " };
            *line += &word;
        } else {
            lines.push(format!("{:indent$}{word}", "", indent = margin + mark.len()));
        }
        is_start = false;
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_and_commands_stay_whole() {
        let text = format!("{} `{}` end", "word ".repeat(16).trim(), "command ".repeat(14).trim());
        let lines = wrap_text(&text, "-> ", 10);
        let lines: Vec<&str> = lines.lines().collect();
        assert!(lines[0].starts_with("          -> word word") && lines[0].len() <= LINE_WIDTH, "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.trim().starts_with("`command") && line.ends_with("command`")),
            "{lines:#?}"
        );
        assert_eq!(lines.join(" ").split_whitespace().skip(1).collect::<Vec<_>>().join(" "), text);
    }
}
