//! Command lines of external programs, with placeholders that godwit replaces by values.
//!
//! The text is split into words as a shell does. No shell is started, so the program itself is the child process of
//! godwit.

use crate::EngineError;

/// A command line of an external program, with placeholders that godwit replaces by values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandTemplate {
    text: String,
    arguments_with_program: Vec<Vec<TemplatePart>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    Text(String),
    Placeholder(&'static str),
}

fn arguments_error(message: String) -> EngineError {
    EngineError::Arguments { message }
}

impl CommandTemplate {
    /// Parses a command line. `program_role`: the kind of program, such as `caller`, for error messages; `placeholders`:
    /// the names that it may contain in braces.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an unclosed quote, an unknown placeholder, or a text that does not start with a
    /// program.
    pub(crate) fn parse(program_role: &str, text: &str, placeholders: &[&'static str]) -> Result<Self, EngineError> {
        let words = shlex::split(text)
            .ok_or_else(|| arguments_error(format!("the {program_role} {text:?} has an unclosed quote")))?;
        let arguments_with_program: Vec<Vec<TemplatePart>> =
            words.iter().map(|word| parse_parts(program_role, word, placeholders)).collect::<Result<_, _>>()?;
        if !matches!(arguments_with_program.first().map(Vec::as_slice), Some([TemplatePart::Text(_)])) {
            return Err(arguments_error(format!("the {program_role} {text:?} does not start with a program")));
        }
        Ok(Self { text: text.to_owned(), arguments_with_program })
    }

    /// Returns the command line as the user wrote it, with placeholders.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the text for this template in job fingerprints. The text does not depend on the names of types and
    /// fields.
    pub(crate) fn fingerprint_text(&self) -> String {
        let part = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => format!("Text({text:?})"),
            TemplatePart::Placeholder(name) => format!("Place({name:?})"),
        };
        let word = |parts: &Vec<TemplatePart>| format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(", "));
        let words: Vec<String> = self.arguments_with_program.iter().map(word).collect();
        format!("Words {{ text: {:?}, words: [{}] }}", self.text, words.join(", "))
    }

    /// Returns the program as the user wrote it: a name or a path.
    pub(crate) fn program(&self) -> &str {
        match self.arguments_with_program.first().map(Vec::as_slice) {
            Some([TemplatePart::Text(program)]) => program,
            _ => "",
        }
    }

    /// Returns the file name of the program, without its directory.
    pub(crate) fn program_name(&self) -> &str {
        let program = self.program();
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Returns whether the command line contains the placeholder `name`.
    pub(crate) fn uses_placeholder(&self, name: &str) -> bool {
        self.arguments_with_program
            .iter()
            .flatten()
            .any(|part| matches!(part, TemplatePart::Placeholder(found) if *found == name))
    }

    /// Returns the arguments of the program, with every placeholder replaced by `value` of its name.
    pub(crate) fn fill_arguments(&self, value: impl Fn(&str) -> String) -> Vec<String> {
        let fill = |part: &TemplatePart| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Placeholder(name) => value(name),
        };
        self.arguments_with_program[1..].iter().map(|word| word.iter().map(fill).collect()).collect()
    }
}

/// Parses the placeholders `{name}` of a word. `{{` and `}}` stand for literal braces.
fn parse_parts(
    program_role: &str,
    word: &str,
    placeholders: &[&'static str],
) -> Result<Vec<TemplatePart>, EngineError> {
    let (mut parts, mut text) = (Vec::new(), String::new());
    let mut rest = word;
    while let Some(at) = rest.find(['{', '}']) {
        text += &rest[..at];
        let brace = &rest[at..at + 1];
        if rest[at + 1..].starts_with(brace) {
            text += brace;
            rest = &rest[at + 2..];
            continue;
        }
        let name = rest[at..].strip_prefix('{').and_then(|rest| rest.split_once('}')).map(|(name, _)| name);
        let Some(placeholder) = placeholders.iter().copied().find(|known| name == Some(*known)) else {
            let known: Vec<String> = placeholders.iter().map(|name| format!("{{{name}}}")).collect();
            return Err(arguments_error(format!(
                "{word:?} of the {program_role} has an unknown placeholder; the placeholders are {}",
                known.join(" ")
            )));
        };
        if !text.is_empty() {
            parts.push(TemplatePart::Text(std::mem::take(&mut text)));
        }
        parts.push(TemplatePart::Placeholder(placeholder));
        rest = &rest[at + placeholder.len() + 2..];
    }
    text += rest;
    if !text.is_empty() || parts.is_empty() {
        parts.push(TemplatePart::Text(text));
    }
    Ok(parts)
}
