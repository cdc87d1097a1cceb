//! Patterns of names that are paths.

/// Whether a name is what a pattern says: `*` stands for any characters but `/`, `**` for any, `?` for one but `/`.
pub fn fits_pattern(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    if let Some(rest) = pattern.strip_prefix("**") {
        return name.char_indices().map(|(at, _)| at).chain([name.len()]).any(|at| fits_pattern(rest, &name[at..]));
    }
    if first == '*' {
        let ends = name.char_indices().take_while(|(_, character)| *character != '/');
        let ends = ends.map(|(at, character)| at + character.len_utf8());
        return [0].into_iter().chain(ends).any(|at| fits_pattern(rest, &name[at..]));
    }
    let mut characters = name.chars();
    match characters.next() {
        Some(next) if next == first || (first == '?' && next != '/') => fits_pattern(rest, characters.as_str()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stay_in_their_directory_unless_they_say_otherwise() {
        for (pattern, name, fitting) in [
            ("*.vcf.gz", "a.vcf.gz", true),
            ("*.vcf.gz", "x/a.vcf.gz", false),
            ("*/*.bam", "x/a.bam", true),
            ("**.bam", "x/y/a.bam", true),
            ("x/**/a.bam", "x/y/z/a.bam", true),
            ("a?.bam", "a1.bam", true),
            ("a?.bam", "a.bam", false),
            ("*", "é", true),
            ("", "", true),
            ("a", "", false),
        ] {
            assert_eq!(fits_pattern(pattern, name), fitting, "{pattern} {name}");
        }
    }
}
