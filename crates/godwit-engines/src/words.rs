//! Command lines with places left open.
//!
//! The words are split as a shell does, without starting one, so that the program itself is godwit's child.

use crate::EngineError;

/// A command line with open places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    text: String,
    words: Vec<Vec<Piece>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Place(&'static str),
}

/// A place that may be left open, and what it becomes.
pub(crate) type Place = (&'static str, &'static str);

fn wrong(message: String) -> EngineError {
    EngineError::Arguments { message }
}

impl Words {
    /// Reads a command line. `noun`: what the program is for those who read messages.
    ///
    /// # Errors
    /// [`EngineError::Arguments`] for an open quote, an unknown place, or a line that does not start with a program.
    pub(crate) fn parse(noun: &str, text: &str, places: &[Place]) -> Result<Self, EngineError> {
        let words = split(text).ok_or_else(|| wrong(format!("the {noun} {text:?} has a quote that is not closed")))?;
        let words: Vec<Vec<Piece>> = words.iter().map(|word| pieces(noun, word, places)).collect::<Result<_, _>>()?;
        if !matches!(words.first().map(Vec::as_slice), Some([Piece::Text(_)])) {
            return Err(wrong(format!("the {noun} {text:?} does not start with a program")));
        }
        Ok(Self { text: text.to_owned(), words })
    }

    /// The line as it was given.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Writes the text that fingerprints of runs contain, independent of the names of types and fields.
    pub(crate) fn fingerprint_text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => format!("Text({text:?})"),
            Piece::Place(name) => format!("Place({name:?})"),
        };
        let word = |pieces: &Vec<Piece>| format!("[{}]", pieces.iter().map(piece).collect::<Vec<_>>().join(", "));
        let words: Vec<String> = self.words.iter().map(word).collect();
        format!("Words {{ text: {:?}, words: [{}] }}", self.text, words.join(", "))
    }

    /// The program as it was given.
    pub(crate) fn program(&self) -> &str {
        match self.words.first().map(Vec::as_slice) {
            Some([Piece::Text(program)]) => program,
            _ => "",
        }
    }

    /// The program's name without its folder.
    pub(crate) fn name(&self) -> &str {
        let program = self.program();
        program.rsplit('/').next().unwrap_or(program)
    }

    /// Whether a place is used.
    pub(crate) fn uses(&self, place: &str) -> bool {
        self.words.iter().flatten().any(|piece| matches!(piece, Piece::Place(name) if *name == place))
    }

    /// The words behind the program, with every place filled.
    pub(crate) fn arguments(&self, value: impl Fn(&str) -> String) -> Vec<String> {
        let fill = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Place(name) => value(name),
        };
        self.words[1..].iter().map(|word| word.iter().map(fill).collect()).collect()
    }
}

/// Words as a shell splits them: quotes and backslashes, nothing else. `None` where a quote is open.
pub(crate) fn split(text: &str) -> Option<Vec<String>> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None, ' ' | '\t' | '\n') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (Some(open), letter) if letter == open => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().push(letters.next()?),
            (_, letter) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// A word with its `{places}`; `{{` and `}}` stand for braces.
fn pieces(noun: &str, word: &str, places: &[Place]) -> Result<Vec<Piece>, EngineError> {
    let (mut pieces, mut text) = (Vec::new(), String::new());
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
        let Some((place, _)) = name.and_then(|name| places.iter().find(|(known, _)| *known == name)) else {
            let known: Vec<String> = places.iter().map(|(name, _)| format!("{{{name}}}")).collect();
            return Err(wrong(format!("{word:?} of the {noun} has a brace that is none of {}", known.join(" "))));
        };
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        pieces.push(Piece::Place(place));
        rest = &rest[at + place.len() + 2..];
    }
    text += rest;
    if !text.is_empty() || pieces.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}
