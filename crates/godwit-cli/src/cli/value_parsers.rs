//! Parsers for the values of options, such as sizes, rates, durations, names and tags.

use std::path::PathBuf;
use std::time::Duration;

use super::copy::StreamCount;
use godwit_engines::EngineError;
use godwit_engines::aligner::AlignerChoice;
use godwit_engines::caller::CallerChoice;
use godwit_engines::variant_filter::TrainingResource;
use godwit_transfer::location::Location;
use godwit_workflow::sample_name_problem;

/// Parses a bandwidth in bits per second, with a decimal unit: `10G`, `500M`.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic() || c == '/');
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "bit/s" | "bps" => 1,
        "k" | "kbit" | "kbit/s" | "kbps" => 1_000,
        "m" | "mbit" | "mbit/s" | "mbps" => 1_000_000,
        "g" | "gbit" | "gbit/s" | "gbps" => 1_000_000_000,
        unit => return Err(format!("{unit} is not a unit of bandwidth; use K, M or G, in bits per second")),
    };
    let number: u64 = digits.parse().map_err(|_| "a bandwidth is a whole number and a unit, as in 10G".to_string())?;
    number.checked_mul(unit).filter(|rate| *rate > 0).ok_or_else(|| "out of range".into())
}

/// Parses a fraction or factor, which must be greater than 0 and at most 100.
pub(super) fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "a fraction is a number, as in 0.5".to_string())?;
    if share > 0.0 && share <= 100.0 { Ok(share) } else { Err("a fraction is greater than 0 and at most 100".into()) }
}

/// Parses the factor between a measured and a planned sample: a number greater than 0 and at most a billion.
pub(super) fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "a factor is a number, as in 30.5".to_string())?;
    if scale > 0.0 && scale <= 1e9 { Ok(scale) } else { Err("a factor is greater than 0 and at most 1e9".into()) }
}

/// Parses the factor on the mutation rates between two human haplotypes: a number from 0 to 100. At 100, about one base
/// in ten is mutated.
pub(super) fn parse_mutation_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "a factor is a number, as in 0.5".to_string())?;
    if (0.0..=100.0).contains(&factor) { Ok(factor) } else { Err("a factor is from 0 to 100".into()) }
}

/// Maximum number of connections of a copy.
const MAX_STREAMS: u32 = 200;

/// Parses a number of connections, or `auto`.
pub(super) fn parse_streams(text: &str) -> Result<StreamCount, String> {
    if text == "auto" {
        return Ok(StreamCount(None));
    }
    let number = text.parse().ok().filter(|number| (1..=MAX_STREAMS).contains(number));
    number.map(|number| StreamCount(Some(number))).ok_or_else(|| format!("auto, or a number from 1 to {MAX_STREAMS}"))
}

/// Parses the URL of a Flight server, without a path.
pub(super) fn parse_server_url(text: &str) -> Result<String, String> {
    match Location::parse(text) {
        Ok(Location::Remote(remote)) if remote.path.trim_matches('/').is_empty() => Ok(remote.server_uri()),
        _ => Err("a server: grpc+tls://HOST:PORT, or grpc+tcp://".to_owned()),
    }
}

/// Parses the base URL of a web service.
pub(super) fn parse_web_url(text: &str) -> Result<String, String> {
    let behind = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    let fine =
        |rest: &&str| !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(|byte| byte.is_ascii_graphic());
    let fine = behind.filter(fine).is_some_and(|rest| !rest.contains(['?', '#']));
    if fine {
        Ok(text.to_owned())
    } else {
        Err("expected a URL such as https://HOST, with port or path if needed".to_owned())
    }
}

/// Parses a number of milliseconds, with or without the unit `ms`.
pub(super) fn parse_milliseconds(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim_end_matches("ms").parse().map_err(|_| "a number of milliseconds".to_string())?;
    Some(number).filter(|number| *number > 0.0 && *number < 1e6).ok_or_else(|| "out of range".into())
}

/// Parses the name of a Python function: `my_steps:keep`, `package.module:name`.
pub(super) fn parse_step(text: &str) -> Result<String, String> {
    let is_name = |name: &str| {
        let starts = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
        starts && name.chars().all(|character| character.is_alphanumeric() || character == '_')
    };
    let names =
        text.split_once(':').filter(|(module, function)| module.split('.').chain(function.split('.')).all(is_name));
    names
        .map(|_| text.to_owned())
        .ok_or_else(|| "a function is written MODULE:FUNCTION, as in my_steps:keep".to_owned())
}

/// Parses a duration: `30s`, `5m`, `2h`, or a number of seconds without a unit.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit_s = match &text[digits.len()..] {
        "" | "s" => Some(1),
        "m" => Some(60),
        "h" => Some(3600),
        _ => None,
    };
    let seconds = unit_s.zip(digits.parse::<u64>().ok()).and_then(|(unit, count)| count.checked_mul(unit));
    seconds.map(Duration::from_secs).ok_or_else(|| "expected a time like 30s, 5m or 2h".to_owned())
}

/// Parses a size in bytes: a number, optionally with a binary unit (`64K` is 64 * 1024 bytes; `512M`, `8G`, `1T`).
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "K" | "KB" | "KIB" => 10,
        "M" | "MB" | "MIB" => 20,
        "G" | "GB" | "GIB" => 30,
        "T" | "TB" | "TIB" => 40,
        unit => return Err(format!("{unit} is not a unit of size; use K, M, G or T")),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a size is a whole number and a unit, as in 512M or 8G".to_string())?;
    number.checked_mul(1 << unit).filter(|bytes| *bytes > 0).ok_or_else(|| "out of range".into())
}

/// Parses the name of a sample, which is used in file names and as the `SM` field of read groups.
pub(super) fn parse_sample(text: &str) -> Result<String, String> {
    sample_name_problem(text).map_or_else(|| Ok(text.into()), |problem| Err(problem.into()))
}

/// Parses the two characters of a SAM tag (SAMv1 §1.5, 2023-05-24).
pub(super) fn parse_tag(text: &str) -> Result<[u8; 2], String> {
    match text.as_bytes() {
        [first, second] if first.is_ascii_alphabetic() && second.is_ascii_alphanumeric() => Ok([*first, *second]),
        _ => Err("a tag is a letter and a letter or digit, as in RX".into()),
    }
}

/// Parses a tag of `--keep-tags`. `RG` is rejected, because the read group comes from the header or from
/// `--read-group`.
pub(super) fn parse_kept_tag(text: &str) -> Result<[u8; 2], String> {
    match text {
        "RG" => Err("RG comes from the header or --read-group".into()),
        _ => parse_tag(text),
    }
}

/// Parses the name of an aligner, or a command line with placeholders.
pub(super) fn parse_aligner(text: &str) -> Result<AlignerChoice, String> {
    text.parse().map_err(|error: EngineError| error.to_string())
}

/// Parses the name of a variant caller, or a command line with placeholders.
pub(super) fn parse_caller(text: &str) -> Result<CallerChoice, String> {
    text.parse().map_err(|error: EngineError| error.to_string())
}

/// Parses a number of bases, with an optional decimal unit: `2K`, `1M`.
pub(super) fn parse_bases(text: &str) -> Result<u32, String> {
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (&text[..at], 1_000),
        Some((at, 'm' | 'M')) => (&text[..at], 1_000_000),
        Some((at, 'g' | 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u32 =
        digits.parse().map_err(|_| "a number of bases is whole, with K, M or G, as in 500K".to_string())?;
    let bases = number.checked_mul(unit).filter(|bases| (1_000..=2_000_000_000).contains(bases));
    bases.ok_or_else(|| "a region has between 1K and 2G bases".into())
}

/// Parses the path of a VCF file that ends with `.vcf.gz`.
pub(super) fn parse_vcf(text: &str) -> Result<PathBuf, String> {
    let stem = text.strip_suffix(".vcf.gz").filter(|stem| !stem.is_empty() && !stem.ends_with('/'));
    stem.map(|_| PathBuf::from(text)).ok_or_else(|| "a bgzipped VCF has a name that ends in .vcf.gz".into())
}

/// Parses the tags and the path of a training resource for variant recalibration: `TAGS:VCF`.
pub(super) fn parse_resource(text: &str) -> Result<TrainingResource, String> {
    text.parse().map_err(|error: EngineError| error.to_string())
}

/// Parses the path of a BAM file that ends with `.bam`.
pub(super) fn parse_bam(text: &str) -> Result<PathBuf, String> {
    let stem = text.strip_suffix(".bam").filter(|stem| !stem.is_empty() && !stem.ends_with('/'));
    stem.map(|_| PathBuf::from(text)).ok_or_else(|| "its name ends in .bam".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units() {
        assert_eq!(parse_size("8G"), Ok(8 << 30));
        assert_eq!(parse_size("128M"), Ok(128 << 20));
        assert_eq!(parse_size("1000"), Ok(1000));
        assert!(parse_size("8X").is_err() && parse_size("").is_err() && parse_size("0G").is_err());
        assert!(parse_size("99999999999T").is_err());
    }

    #[test]
    fn addresses_of_pages_have_a_host() {
        for fine in ["https://a.org", "http://a:80/b"] {
            assert_eq!(parse_web_url(fine).as_deref(), Ok(fine));
        }
        assert!(
            ["a.org", "https://", "https:///b", "ftp://a", "https://a b", "https://a?b"]
                .iter()
                .all(|text| parse_web_url(text).is_err())
        );
    }

    #[test]
    fn bases_take_decimal_units() {
        assert_eq!([parse_bases("2K"), parse_bases("1M"), parse_bases("1500")], [Ok(2_000), Ok(1_000_000), Ok(1_500)]);
        assert!(["", "K", "999", "3G", "1.5M"].iter().all(|text| parse_bases(text).is_err()));
        assert!(parse_vcf("a/b.vcf.gz").is_ok() && parse_vcf("a/.vcf.gz").is_err() && parse_vcf("b.vcf").is_err());
    }

    #[test]
    fn rates_take_decimal_units_and_times_are_milliseconds() {
        assert_eq!(parse_rate("10G"), Ok(10_000_000_000));
        assert_eq!(parse_rate("500Mbit/s"), Ok(500_000_000));
        assert!(parse_rate("10X").is_err() && parse_rate("0G").is_err());
        assert_eq!(parse_share("0.5"), Ok(0.5));
        assert!(["0", "-1", "NaN", "inf", "half"].iter().all(|text| parse_share(text).is_err()));
        assert_eq!(parse_scale("4650"), Ok(4650.0));
        assert!(["0", "-1", "NaN", "inf", "half"].iter().all(|text| parse_scale(text).is_err()));
        assert_eq!([parse_mutation_factor("0"), parse_mutation_factor("2.5")], [Ok(0.0), Ok(2.5)]);
        assert!(["-1", "NaN", "inf", "1e9", "half"].iter().all(|text| parse_mutation_factor(text).is_err()));
        assert_eq!(parse_milliseconds("40ms"), Ok(40.0));
        assert!(parse_milliseconds("-1").is_err() && parse_milliseconds("soon").is_err());
    }
}
