//! `godwit simulate`: reads with a known truth, for benchmarks.

use godwit_formats::with_causes;
use godwit_pipeline::simulate::{Assembly, ReadOptions, Sample, SampleOptions, SimulateError, write_reads};

use crate::cli::SimulateArgs;
use crate::failure::{Exit, Failure, print};

/// Draws a sample of the reference and sequences it.
pub fn run(args: &SimulateArgs) -> Result<(), Failure> {
    print(&simulate(args).map_err(failure)?)
}

/// Returns the names of the files, a line each.
fn simulate(args: &SimulateArgs) -> Result<String, SimulateError> {
    let assembly = Assembly::read_fasta(&args.reference)?;
    let sample = Sample::draw(&assembly, &SampleOptions { seed: args.seed, ..SampleOptions::default() });
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
    sample.write_vcf(&assembly, vcf.as_ref())?;
    let written = write_reads(&assembly, &sample, &options, &args.out)?;
    Ok(written.lanes.iter().flatten().map(|file| format!("{}\n", file.display())).collect())
}

/// Options are the user's, files the machine's.
pub fn failure(error: SimulateError) -> Failure {
    let exit = match &error {
        SimulateError::Option { .. } | SimulateError::NoPlace { .. } => Exit::Usage,
        SimulateError::NotFasta { .. } | SimulateError::EmptyGenome | SimulateError::ContigTooLong { .. } => {
            Exit::Input
        }
        SimulateError::Read { .. } | SimulateError::Write { .. } => Exit::Machine,
    };
    Failure::new(exit, with_causes(&error))
}
