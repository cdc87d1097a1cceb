//! Division of VCF text into fields.

/// Returns the fields of a text between separators, in order. A text without separators is one field.
///
/// The separator is an ASCII character. Most fields are a few bytes long, for which `str::split` takes twice the time.
pub(super) fn split_fields(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let mut start = 0;
    memchr::memchr_iter(separator, text.as_bytes()).chain([text.len()]).map(move |end| {
        let field = &text[start..end];
        start = end + 1;
        field
    })
}

/// Divides a text at the first separator, an ASCII character. Returns `None` as the second part without a separator.
pub(super) fn split_at_first(text: &str, separator: u8) -> (&str, Option<&str>) {
    match text.bytes().position(|byte| byte == separator) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_str_split() {
        for text in ["", ";", "a", "a;b", ";a;;é;", "DP=1;MQ=é=2"] {
            assert_eq!(split_fields(text, b';').collect::<Vec<_>>(), text.split(';').collect::<Vec<_>>());
            let expected = text.split_once('=').map_or((text, None), |(key, value)| (key, Some(value)));
            assert_eq!(split_at_first(text, b'='), expected);
        }
    }
}
