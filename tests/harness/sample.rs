//! Reads of a small genome, as a sequencer produces them, and the directory that holds them.
//!
//! Input: a [`SampleSpec`]. Output: a [`Sample`]: a reference with bwa's index, and FASTQ files per lane, with PCR and
//! optical duplicates, chimeric and split templates, reads that are not of the genome, bases N, reads of every length
//! from 1 to 101, and some names of other forms than Illumina's.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use flate2::Compression;
use flate2::write::GzEncoder;
use parking_lot::Mutex;

use crate::binary::godwit;
use crate::genome::{SmallGenome, mutate, reverse_complement};
use crate::random::Random;
use crate::reference_pipeline::Lane;
use crate::scratch;
use crate::tool::Tool;

/// The number of bases of an ordinary read.
pub const READ_BASES: usize = 101;

/// The text that follows the name on a title line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TitleComments {
    /// Nothing, or Illumina's `1:N:0:INDEX`.
    Illumina,
    /// SAM tags, as `bwa mem -C` requires them.
    Tags,
}

/// The properties of a sample. Equal specifications give equal files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SampleSpec {
    /// The seed of all random choices.
    pub seed: u64,
    /// The number of templates of each lane.
    pub lanes: Vec<usize>,
    /// True if each lane has two files.
    pub paired: bool,
    /// True if the reference has an alternate contig and a `.alt` file.
    pub alternate: bool,
    /// The text that follows names.
    pub comments: TitleComments,
}

/// A sample on disk.
#[derive(Debug)]
pub struct Sample {
    /// The path of the reference; `bwa index` has written its index beside it.
    pub reference: PathBuf,
    /// The files and the read group of each lane.
    pub lanes: Vec<Lane>,
    directory: PathBuf,
    godwit_reference: OnceLock<PathBuf>,
}

impl Sample {
    /// Returns the sample of `spec`, which is created once for each process.
    pub fn cached(spec: &SampleSpec) -> Arc<Self> {
        type Cell = Arc<OnceLock<Arc<Sample>>>;
        static SAMPLES: Mutex<Option<HashMap<SampleSpec, Cell>>> = Mutex::new(None);
        let cell = {
            let mut samples = SAMPLES.lock();
            samples.get_or_insert_default().entry(spec.clone()).or_default().clone()
        };
        cell.get_or_init(|| Arc::new(Self::simulate(spec))).clone()
    }

    /// Returns the sample of pairs on two lanes that several tests use.
    pub fn two_lanes() -> Arc<Self> {
        let lanes = vec![1500, 900];
        Self::cached(&SampleSpec { seed: 11, lanes, paired: true, alternate: false, comments: TitleComments::Illumina })
    }

    fn simulate(spec: &SampleSpec) -> Self {
        let directory = scratch::directory("sample");
        let genome = SmallGenome::new(spec.seed, spec.alternate);
        genome.write(&directory);
        let reference = directory.join("ref.fa");
        Tool::require("bwa").run(["index".as_ref(), reference.as_os_str()]);
        let mut sequencer = ReadSimulator::new(&genome, spec);
        let lanes = (0..spec.lanes.len()).map(|lane| sequencer.simulate_lane(lane, &directory)).collect();
        Self { reference, lanes, directory, godwit_reference: OnceLock::new() }
    }

    /// Returns a copy of the reference with an index of `godwit index`. The copy is created once for all tests.
    ///
    /// # Panics
    /// When godwit fails.
    pub fn godwit_indexed_reference(&self) -> &Path {
        self.godwit_reference.get_or_init(|| {
            let directory = self.directory.join("godwit");
            std::fs::create_dir(&directory).expect("the sample's directory can be written to");
            let copy = directory.join("ref.fa");
            for name in ["ref.fa", "ref.fa.alt"] {
                if self.directory.join(name).exists() {
                    std::fs::copy(self.directory.join(name), directory.join(name))
                        .expect("the reference can be copied");
                }
            }
            godwit().arg("index").arg(&copy).run_ok();
            copy
        })
    }
}

/// The origin of a template, from which duplicates of the template are created.
#[derive(Clone, Debug)]
struct Template {
    /// The bases of both reads, as sequenced, without errors.
    reads: [Vec<u8>; 2],
    /// Lane, tile, x, y.
    cluster: [usize; 4],
}

struct ReadSimulator<'a> {
    genome: &'a SmallGenome,
    spec: &'a SampleSpec,
    random: Random,
    templates: Vec<Template>,
}

impl<'a> ReadSimulator<'a> {
    fn new(genome: &'a SmallGenome, spec: &'a SampleSpec) -> Self {
        Self { genome, spec, random: Random::new(spec.seed ^ 0x5eed), templates: Vec::new() }
    }

    /// Writes the files of a lane. The first is gzip of several members, others are plain text.
    fn simulate_lane(&mut self, lane: usize, directory: &Path) -> Lane {
        let mut texts = [Vec::new(), Vec::new()];
        for ordinal in 0..self.spec.lanes[lane] {
            let template = self.random_template(lane);
            let name = self.name(&template, ordinal);
            for (mate, text) in texts.iter_mut().enumerate() {
                self.write_read(text, &name, mate, &template.reads[mate]);
            }
            if self.templates.len() < 4000 {
                self.templates.push(template);
            }
        }
        let files = if self.spec.paired { 2 } else { 1 };
        let reads = (0..files)
            .map(|mate| {
                let stem = format!("L{}_R{}.fastq", lane + 1, mate + 1);
                if lane == 0 {
                    write_gzip_members(&directory.join(stem + ".gz"), &texts[mate])
                } else {
                    write_plain(&directory.join(stem), &texts[mate])
                }
            })
            .collect();
        // Lanes 0 and 1 have the same library, so that duplicates exist across lanes. Each later lane has its own
        // library.
        let library = if lane < 2 { "libA".to_owned() } else { format!("lib{lane}") };
        let read_group =
            format!("@RG\\tID:L{}\\tSM:sample\\tLB:{library}\\tPL:ILLUMINA\\tPU:FC.{}", lane + 1, lane + 1);
        Lane { reads, read_group }
    }

    fn random_template(&mut self, lane: usize) -> Template {
        let fresh = [lane + 1, 1101 + self.random.below(6), self.random.below(30_000), self.random.below(30_000)];
        if !self.templates.is_empty() && self.random.chance(0.18) {
            let mut copy = self.random.pick(&self.templates).clone();
            let optical = copy.cluster[0] == lane + 1 && self.random.chance(0.3);
            if optical {
                copy.cluster[2] += self.random.below(120);
                copy.cluster[3] += self.random.below(120);
            } else {
                copy.cluster = fresh;
            }
            return copy;
        }
        Template { reads: self.fragment(), cluster: fresh }
    }

    /// Draws both reads of a new fragment: ordinary, chimeric, split, or not of the genome.
    fn fragment(&mut self) -> [Vec<u8>; 2] {
        let [mut first, mut second] = self.ends();
        match self.random.below(200) {
            0 => first = self.random.bases(READ_BASES),
            1 => (first, second) = (self.random.bases(READ_BASES), self.random.bases(READ_BASES)),
            2 | 3 => second = self.ends()[1].clone(),
            4 | 5 => first.splice(READ_BASES / 2.., self.ends()[0][..50].to_vec()).for_each(drop),
            6 => first[20..60].fill(b'N'),
            7 => first.truncate(1 + self.random.below(25)),
            8..20 => {
                first.truncate(30 + self.random.below(71));
                second.truncate(30 + self.random.below(71));
            }
            _ => {}
        }
        [first, second]
    }

    fn ends(&mut self) -> [Vec<u8>; 2] {
        loop {
            // Of 200 templates, one is from the contig that is shorter than a read, and eight are from an alternate
            // contig.
            let contig = match self.random.below(200) {
                0 => 4,
                1..9 if self.spec.alternate => 5,
                _ => *self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 3]),
            };
            let bases = &self.genome.haplotypes[2 * contig + self.random.below(2)];
            if bases.len() < READ_BASES {
                let mut first = bases.clone();
                first.extend(self.random.bases(READ_BASES - bases.len()));
                return [first.clone(), reverse_complement(&first)];
            }
            let insert = (self.random.normal(320.0, 45.0) as usize).max(READ_BASES);
            let start = self.random.below(bases.len());
            if start + insert > bases.len() {
                continue;
            }
            let fragment = &bases[start..start + insert];
            let [one, other] = [fragment.to_vec(), reverse_complement(fragment)].map(|mut strand| {
                strand.truncate(READ_BASES);
                strand
            });
            return if self.random.chance(0.5) { [one, other] } else { [other, one] };
        }
    }

    fn name(&mut self, template: &Template, ordinal: usize) -> String {
        let [lane, tile, x, y] = template.cluster;
        match self.random.below(100) {
            0 => format!("read_{lane}_{ordinal}"),
            1 => format!("RUN{ordinal}:{lane}:{tile}:{x}:{y}"),
            2 => format!("INST:1:FC:{lane}:{tile}:{x}:{y}#ACGT{ordinal}"),
            // The ordinal makes the names of optical duplicates unique. In real Illumina names, their different
            // positions do that.
            _ => format!("INST:{ordinal}:FC:{lane}:{tile}:{x}:{y}"),
        }
    }

    fn write_read(&mut self, text: &mut Vec<u8>, name: &str, mate: usize, bases: &[u8]) {
        let suffix = if name.starts_with("read_") { format!("/{}", mate + 1) } else { String::new() };
        let comment = match self.spec.comments {
            TitleComments::Tags => {
                let molecule = ["AC-GT", "AC-GT", "GT-AC"][name.bytes().map(usize::from).sum::<usize>() % 3];
                format!(" BC:Z:ACGTAC\tYQ:i:7\tRX:Z:{molecule}")
            }
            TitleComments::Illumina if name.starts_with("INST") => format!(" {}:N:0:ACGTAC", mate + 1),
            TitleComments::Illumina => String::new(),
        };
        let errors = if self.random.chance(0.05) { 0.04 } else { 0.003 };
        let mut read = mutate(bases, errors, errors / 20.0, &mut self.random);
        if read.is_empty() {
            read.push(b'A');
        }
        let floor = if errors > 0.01 { 2 } else { 20 };
        let qualities: Vec<u8> =
            (0..read.len()).map(|_| 33 + *self.random.pick(&[floor, 30, 37, 37, 37, 40])).collect();
        text.extend_from_slice(format!("@{name}{suffix}{comment}\n").as_bytes());
        text.extend_from_slice(&read);
        text.extend_from_slice(b"\n+\n");
        text.extend_from_slice(&qualities);
        text.push(b'\n');
    }
}

/// Writes `text` uncompressed.
///
/// # Panics
/// When writing fails.
pub fn write_plain(path: &Path, text: &[u8]) -> PathBuf {
    std::fs::write(path, text).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    path.to_path_buf()
}

/// Writes `text` as gzip of three members, as `cat a.gz b.gz` makes it.
///
/// # Panics
/// When writing fails.
pub fn write_gzip_members(path: &Path, text: &[u8]) -> PathBuf {
    let mut packed = Vec::new();
    for part in text.chunks(text.len() / 3 + 1) {
        let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
        encoder.write_all(part).and_then(|()| encoder.finish().map(drop)).expect("memory can be written to");
    }
    write_plain(path, &packed)
}
