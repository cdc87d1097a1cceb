//! `godwit simulate`: simulates reads with known origins and variants, for benchmarks.

use std::path::{Path, PathBuf};

use godwit_cli::cli::SimulateArgs;
use godwit_cli::failure::{Failure, print};
use godwit_model::ErrorKind;
use godwit_model::message_with_causes;
use godwit_simulate::{Assembly, ReadOptions, Sample, SampleOptions, SimulateError, read_file_paths, write_reads};

use super::output_check::{check_output, reference_files};

/// Simulates a diploid sample of the reference and its reads, and prints the names of the files.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    let options = ReadOptions {
        pairs: args.pairs,
        read_bases: args.read_bases,
        insert_mean: args.read_bases * 5 / 2,
        lanes: args.lanes,
        gzip: args.gzip,
        seed: args.seed,
        ..ReadOptions::default()
    };
    let mut vcf = args.out.clone().into_os_string();
    vcf.push(".truth.vcf");
    let vcf = PathBuf::from(vcf);
    let inputs = reference_files(&args.reference);
    for path in read_file_paths(&options, &args.out).map_err(simulate_failure)?.iter().chain([&vcf]) {
        check_output("--out", path, &inputs)?;
    }
    print(&simulate_reads(args, &options, &vcf).map_err(simulate_failure)?)
}

/// Simulates and writes the reads, and the true variants to `vcf`. Returns the names of the files, one per line.
fn simulate_reads(args: &SimulateArgs, options: &ReadOptions, vcf: &Path) -> Result<String, SimulateError> {
    let assembly = Assembly::read_fasta(&args.reference)?;
    let sample = Sample::draw(&assembly, &SampleOptions { seed: args.seed, ..SampleOptions::default() });
    sample.write_vcf(&assembly, vcf)?;
    let written = write_reads(&assembly, &sample, options, &args.out)?;
    Ok(written.lanes.iter().flatten().map(|file| format!("{}\n", file.display())).collect())
}

/// Converts an error of the simulation to a failure: invalid options are wrong usage, file errors are problems of this
/// host.
pub fn simulate_failure(error: SimulateError) -> Failure {
    let kind = match &error {
        SimulateError::Option { .. } | SimulateError::NoPosition { .. } => ErrorKind::Usage,
        SimulateError::NotFasta { .. } | SimulateError::EmptyGenome | SimulateError::ContigTooLong { .. } => {
            ErrorKind::Input
        }
        SimulateError::Read { .. } | SimulateError::Write { .. } => ErrorKind::Machine,
    };
    Failure::new(kind, message_with_causes(&error))
}
