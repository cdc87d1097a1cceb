//! The origin of a read, parsed from its name.
//!
//! Only names that identify the flow cell and its lane with certainty give a read group that several files can share.
//! All other read groups are numbered in the order of the inputs.

/// The origin of a read, as far as its name identifies it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameOrigin {
    /// ID of the read group: equal for all files of one lane of one flow cell, and for no other files.
    pub(super) id: Option<String>,
    /// Platform unit, `PU`.
    pub(super) platform_unit: Option<String>,
    /// Platform, `PL`, as SAMv1 §1.3 (2024-11-06) spells it.
    pub(super) platform: Option<&'static str>,
}

impl NameOrigin {
    /// Parses a read name from which `/1` or `/2` was removed.
    pub(super) fn from_name(name: &str) -> Self {
        if !name.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Self::default();
        }
        let styles = [casava, old_illumina, mgi, ultima, archive, pacbio, nanopore];
        styles.into_iter().find_map(|style| style(name)).unwrap_or_default()
    }

    fn from_platform_unit(unit: String, platform: Option<&'static str>) -> Self {
        Self { id: Some(unit.clone()), platform_unit: Some(unit), platform }
    }
}

/// Parses names of Casava 1.8 and later, which Element's bases2fastq also writes:
/// `instrument:run:flowcell:lane:tile:x:y[:UMI]`. The instrument names of Element are `AV` followed by a number.
fn casava(name: &str) -> Option<NameOrigin> {
    let fields: Vec<&str> = name.split(':').collect();
    let (&[instrument, _, flowcell, lane, _, _, _] | &[instrument, _, flowcell, lane, _, _, _, _]) = &fields[..] else {
        return None;
    };
    let element = instrument.strip_prefix("AV").is_some_and(is_number);
    let unit = (!flowcell.is_empty() && !lane.is_empty()).then(|| format!("{flowcell}.{lane}"))?;
    Some(NameOrigin::from_platform_unit(unit, Some(if element { "ELEMENT" } else { "ILLUMINA" })))
}

/// Parses names of Illumina before Casava 1.8: `instrument:lane:tile:x:y[#index]`. Two runs of an instrument have the
/// same names, so these names give no read group ID.
fn old_illumina(name: &str) -> Option<NameOrigin> {
    let name = name.split_once('#').map_or(name, |(name, _)| name);
    let [instrument, lane, tile, x, y] = name.split(':').collect::<Vec<_>>()[..] else { return None };
    let places = [lane, tile, x.trim_start_matches('-'), y.trim_start_matches('-')];
    let fine = !instrument.is_empty() && places.into_iter().all(is_number);
    let unit = fine.then(|| format!("{instrument}.{lane}"))?;
    Some(NameOrigin { id: None, platform_unit: Some(unit), platform: Some("ILLUMINA") })
}

/// Parses names of MGI and BGI such as `V300012345L1C001R0010000001`: the flow cell, `L` and the lane, `C` and a column
/// of 3 digits, `R` and a row of 3 digits, and a number.
fn mgi(name: &str) -> Option<NameOrigin> {
    let (at, lane) = name.match_indices('L').find_map(|(at, _)| {
        let place = name.get(at + 1..at + 10)?.as_bytes();
        let letters = (place[1], place[5]) == (b'C', b'R');
        let digits = [0, 2, 3, 4, 6, 7, 8].into_iter().all(|index| place[index].is_ascii_digit());
        (letters && digits).then_some((at, char::from(place[0])))
    })?;
    let flowcell = &name[..at];
    let fine = flowcell.starts_with(|first: char| first.is_ascii_uppercase())
        && flowcell.bytes().all(|byte| byte.is_ascii_alphanumeric())
        && flowcell.bytes().any(|byte| byte.is_ascii_digit());
    fine.then(|| NameOrigin::from_platform_unit(format!("{flowcell}.{lane}"), Some("DNBSEQ")))
}

/// Parses names of Ultima: `run[_n]-barcode-number`, where the barcode is `UGAv..` (which may contain a hyphen itself)
/// or a letter and four digits. A file holds one barcode of one wafer.
fn ultima(name: &str) -> Option<NameOrigin> {
    let (unit, number) = name.rsplit_once('-')?;
    let (run, barcode) = unit.split_once('-')?;
    let letter = |barcode: &str| barcode.len() == 5 && barcode.starts_with(|first: char| first.is_ascii_uppercase());
    let known = barcode.starts_with("UGAv") || letter(barcode) && is_number(&barcode[1..]);
    let fine = known && is_number(number) && run.len() >= 5 && run.split('_').all(is_number);
    fine.then(|| NameOrigin::from_platform_unit(unit.to_owned(), Some("ULTIMA")))
}

/// Parses names of read archives: `SRR1234567.1` and `ERR1234567.1.1`. The run accession replaces flow cell and lane;
/// the platform is unknown.
fn archive(name: &str) -> Option<NameOrigin> {
    let (run, number) = name.split_once('.')?;
    let accession = ["SRR", "ERR", "DRR"].into_iter().find_map(|prefix| run.strip_prefix(prefix))?;
    (is_number(accession) && number.split('.').all(is_number))
        .then(|| NameOrigin::from_platform_unit(run.to_owned(), None))
}

/// Parses names of PacBio: `movie/hole/ccs` or `movie/hole/start_end`, with a movie such as `m64011_190830_220126`.
fn pacbio(name: &str) -> Option<NameOrigin> {
    let (movie, hole) = name.split_once('/')?;
    let hole = hole.split('/').next().unwrap_or_default();
    let parts: Vec<&str> = movie.strip_prefix('m')?.split('_').collect();
    let fine = parts.len() >= 3 && parts[1..].iter().all(|part| !part.is_empty()) && is_number(hole);
    fine.then(|| NameOrigin::from_platform_unit(movie.to_owned(), Some("PACBIO")))
}

/// Parses names of Oxford Nanopore: a UUID, which does not identify the run.
fn nanopore(name: &str) -> Option<NameOrigin> {
    let parts: Vec<&str> = name.split('-').collect();
    let uuid = parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()));
    uuid.then(|| NameOrigin { platform: Some("ONT"), ..NameOrigin::default() })
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_origin(name: &str) -> [Option<String>; 3] {
        let NameOrigin { id, platform_unit, platform } = NameOrigin::from_name(name);
        [id, platform_unit, platform.map(str::to_owned)]
    }

    fn some(id: &str, platform: &str) -> [Option<String>; 3] {
        [Some(id.into()), Some(id.into()), Some(platform.into())]
    }

    #[test]
    fn casava_names_tell_flow_cell_and_lane() {
        let expected = some("H2YLKCCXX.3", "ILLUMINA");
        assert_eq!(parse_origin("E00534:142:H2YLKCCXX:3:1101:8268:1502"), expected);
        assert_eq!(parse_origin("E00534:142:H2YLKCCXX:3:1101:8268:1502:ACGT+TTGC"), expected);
        assert_eq!(parse_origin("AVERY:7:FC1:1:1101:8268:1502"), some("FC1.1", "ILLUMINA"));
    }

    #[test]
    fn element_names_are_casavas_with_an_instrument_of_their_own() {
        assert_eq!(
            parse_origin("AV234602:20240506_run-2x150:2232342003:1:10102:0001:0043"),
            some("2232342003.1", "ELEMENT")
        );
    }

    #[test]
    fn old_illumina_names_tell_no_flow_cell() {
        let expected = [None, Some("HWUSI-EAS100R.6".into()), Some("ILLUMINA".into())];
        assert_eq!(parse_origin("HWUSI-EAS100R:6:73:941:1973#0"), expected);
        assert_eq!(parse_origin("HWUSI-EAS100R:6:73:941:-3#ATCACG"), expected);
        assert_eq!(parse_origin("HWUSI-EAS100R:6:73:941:1973"), expected);
    }

    #[test]
    fn mgi_names_tell_flow_cell_and_lane() {
        assert_eq!(parse_origin("V300012345L1C001R0010000001"), some("V300012345.1", "DNBSEQ"));
        assert_eq!(parse_origin("CL100012345L2C001R001_10"), some("CL100012345.2", "DNBSEQ"));
        assert_eq!(parse_origin("DP8400012345TLL1C001R00100000123"), some("DP8400012345TL.1", "DNBSEQ"));
    }

    #[test]
    fn ultima_names_tell_wafer_and_barcode() {
        assert_eq!(parse_origin("030945_1-UGAv3-13-2013478745"), some("030945_1-UGAv3-13", "ULTIMA"));
        assert_eq!(parse_origin("004733-X0003-1345904491"), some("004733-X0003", "ULTIMA"));
    }

    #[test]
    fn archive_names_tell_their_run_and_no_platform() {
        for name in ["SRR1234567.1", "SRR1234567.20.1"] {
            assert_eq!(parse_origin(name), [Some("SRR1234567".into()), Some("SRR1234567".into()), None]);
        }
    }

    #[test]
    fn long_read_names_tell_their_platform() {
        assert_eq!(parse_origin("m64011_190830_220126/101/ccs"), some("m64011_190830_220126", "PACBIO"));
        assert_eq!(parse_origin("0f1a2b3c-0000-4a4b-8c8d-0123456789ab"), [None, None, Some("ONT".into())]);
    }

    #[test]
    fn other_names_tell_nothing() {
        for name in ["", "read_1", "a:b", "SRRx.1", "m/1", "L1C001R001", "x-y-1", "::::::", "A:B:\u{fc}:1:2:3:4"] {
            assert_eq!(parse_origin(name), [None, None, None], "{name}");
        }
        assert_eq!(parse_origin("HWUSI:six:73:941:1973"), [None, None, None]);
    }
}
