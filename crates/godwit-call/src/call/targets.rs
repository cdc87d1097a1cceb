//! Intervals of the genome to call: the values of `--regions`, which are BED files and region strings.

use std::ffi::OsString;
use std::path::Path;

use godwit_formats::intervals::{BedInterval, IntervalError, read_bed};
use godwit_formats::text_lines::TextLineError;
use godwit_model::{Genome, Region, RegionError};
use godwit_pipeline::PipelineError;
use godwit_pipeline::observer::{Event, Observer};

/// The regions to call, in the order of the command line. Each lies within a contig of the genome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Targets {
    pub(super) regions: Vec<Region>,
    /// Description of the first region that was clipped, and the number of clipped regions.
    clipped: Option<(String, usize)>,
}

/// Returns the values of `--regions` that are files.
pub fn region_files(values: &[OsString]) -> impl Iterator<Item = &Path> {
    values.iter().map(Path::new).filter(|path| path.exists())
}

impl Targets {
    /// Reads values of `--regions`; returns `None` if there are none. A value that is the path of a file is read as
    /// BED, any other value as a list of region strings. Regions are clipped at the ends of their contigs, as in
    /// bcftools.
    ///
    /// # Errors
    /// [`PipelineError::Bed`] for a line that is not BED, names a contig that is not in the genome, or starts beyond
    /// the end of its contig; [`PipelineError::Options`] for a region string with such a problem;
    /// [`PipelineError::Missing`] for a value that is neither a file nor a region.
    pub(super) fn read(values: &[OsString], genome: &Genome) -> Result<Option<Self>, PipelineError> {
        if values.is_empty() {
            return Ok(None);
        }
        let mut targets = Self::default();
        for value in values {
            let path = Path::new(value);
            match path.exists() {
                true => targets.add_bed(path, genome)?,
                false => targets.add_text(value, genome)?,
            }
        }
        Ok(Some(targets))
    }

    fn add_bed(&mut self, path: &Path, genome: &Genome) -> Result<(), PipelineError> {
        for BedInterval { contig, start, end, line } in read_bed(path)? {
            let region = Region { contig, start, end };
            let place = format!("line {line} of {}", path.display());
            let invalid = |problem| TextLineError::Line { path: path.to_owned(), line, problem };
            self.add(region, genome, &place).map_err(|problem| IntervalError::from(invalid(problem)))?;
        }
        Ok(())
    }

    fn add_text(&mut self, value: &OsString, genome: &Genome) -> Result<(), PipelineError> {
        let wrong = |problem: String| PipelineError::Options { problem: format!("--regions: {problem}") };
        let path = Path::new(value);
        let Some(text) = value.to_str() else { return Err(missing_regions_error(path)) };
        let regions = Region::parse_list(text, |contig| Some(genome.contig_id(contig).is_some()));
        let regions = regions.map_err(|error| match error {
            RegionError::UnknownContig { .. } | RegionError::Syntax { .. }
                if !text.contains(':') || text.contains('/') =>
            {
                missing_regions_error(path)
            }
            error => wrong(format!("{error}; and no file has this name")),
        })?;
        for region in regions {
            let place = region.to_string();
            self.add(region, genome, &place).map_err(wrong)?;
        }
        Ok(())
    }

    /// Adds a region, clipped at the end of its contig. The error is a text about the problem with the region.
    fn add(&mut self, mut region: Region, genome: &Genome, place: &str) -> Result<(), String> {
        let contig = genome.contig_id(&region.contig).and_then(|id| genome.contig(id));
        let Some(contig) = contig else {
            return Err(format!("there is no contig {:?} in the header of the reads", region.contig));
        };
        let (name, bases) = (&contig.name, contig.length);
        region.check_start(bases.into()).map_err(|error| error.to_string())?;
        if region.end > bases && region.end != Region::OPEN_END {
            let first = || (format!("{place} (contig {name} has {bases} bases)"), 0);
            self.clipped.get_or_insert_with(first).1 += 1;
        }
        region.end = region.end.min(bases);
        self.regions.push(region);
        Ok(())
    }

    /// Warns of regions that were clipped.
    pub(super) fn warn_clipped(&self, observer: &dyn Observer) {
        let Some((first, count)) = &self.clipped else { return };
        let message = match count {
            1 => format!("a region of --regions is clipped, because it ends after the end of its contig: {first}"),
            _ => format!(
                "{count} regions of --regions are clipped, because they end after the ends of their contigs; the \
                 first: {first}"
            ),
        };
        observer.event(&Event::Warning { message });
    }

    /// Returns the starts and ends of the regions, for each contig of the genome.
    pub(super) fn by_contig(&self, genome: &Genome) -> Vec<Vec<(u32, u32)>> {
        let mut targets = vec![Vec::new(); genome.contigs().len()];
        for region in &self.regions {
            if let Some(id) = genome.contig_id(&region.contig) {
                targets[id.0 as usize].push((region.start, region.end));
            }
        }
        targets
    }
}

fn missing_regions_error(path: &Path) -> PipelineError {
    let remedy = "it is neither a file nor a region such as chr20:1000001-2000000 on a contig of the reads".to_owned();
    PipelineError::Missing { description: "the file of regions", path: path.to_owned(), remedy }
}

#[cfg(test)]
mod tests {
    use godwit_model::Contig;

    use super::*;

    fn genome() -> Genome {
        let contig = |(name, length): (&str, u32)| Contig { name: name.to_owned(), length, alternate: false };
        Genome::new([("chr1", 1000), ("HLA-A*01:01:01:01", 50), ("a,b", 10)].map(contig).to_vec()).unwrap()
    }

    fn read(values: &[&str]) -> Result<Vec<String>, PipelineError> {
        let values: Vec<OsString> = values.iter().map(OsString::from).collect();
        let targets = Targets::read(&values, &genome())?.unwrap_or_default();
        Ok(targets.regions.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn files_and_region_strings_are_both_taken_and_clipped() {
        let directory = tempfile::tempdir().unwrap();
        let bed = directory.path().join("a.bed");
        std::fs::write(&bed, "chr1\t7\t99999\nHLA-A*01:01:01:01\t0\t5\n").unwrap();
        let bed = bed.to_str().unwrap();
        assert_eq!(read(&[bed]).unwrap(), ["chr1:8-1000", "{HLA-A*01:01:01:01}:1-5"]);
        assert_eq!(read(&["chr1:5-20,HLA-A*01:01:01:01"]).unwrap(), ["chr1:5-20", "{HLA-A*01:01:01:01}:1-50"]);
        assert_eq!(read(&["chr1:1,000", "a,b", bed]).unwrap().len(), 4);
    }

    #[test]
    fn what_is_no_region_is_named_with_its_file_and_line() {
        let directory = tempfile::tempdir().unwrap();
        let bed = directory.path().join("a.bed");
        for (text, said) in [
            ("chr1\t0\t5\nchr9\t0\t5\n", "line 2: there is no contig \"chr9\""),
            ("chr1\t1000\t1001\n", "line 1: chr1:1001-1001 starts after the end of contig chr1, which has 1000 bases"),
        ] {
            std::fs::write(&bed, text).unwrap();
            let error = read(&[bed.to_str().unwrap()]).unwrap_err().to_string();
            assert!(error.contains("a.bed") && error.contains(said), "{error}");
        }
        for (text, said) in [
            ("chr9:1-5", "no contig \"chr9\""),
            ("chr1:1001", "starts after the end of contig chr1"),
            ("chr1:9-3", "is after its last"),
            ("nowhere.bed", "neither a file nor a region"),
        ] {
            let error = read(&[text]).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
