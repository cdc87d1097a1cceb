//! Options of `godwit bench`.

use clap::{Subcommand, ValueEnum};

use super::{BenchFlightArgs, BenchPathArgs, BenchQueryArgs, BenchShuffleArgs, PathEmulatorArgs};

#[derive(Subcommand)]
pub enum BenchVerb {
    /// Throughput of Arrow Flight, between two local processes or to a server started with --listen
    #[command(after_help = "Example:\n  godwit bench flight --method get --streams 1,2,4 --bytes 1G")]
    Flight(BenchFlightArgs),
    /// Throughput of `godwit copy` over an emulated long-distance network path; requires root
    #[command(after_help = "Example:\n  sudo godwit bench path --rate 1G --rtt 100 --loss 0.0001")]
    Path(BenchPathArgs),
    /// Run only the emulator of `path`
    #[command(hide = true)]
    PathEmulator(PathEmulatorArgs),
    /// Latency and throughput of SQL statements, on a server or on a directory
    #[command(
        after_help = "Example:\n  godwit bench query --data out --clients 1,4 \"SELECT count(*) FROM reads('S.bam')\""
    )]
    Query(BenchQueryArgs),
    /// Throughput of an all-to-all shuffle: between local processes, or with peers started with --listen
    #[command(after_help = "Example:\n  godwit bench shuffle --nodes 1,2,4,8 --bytes 64M,256M")]
    Shuffle(BenchShuffleArgs),
}

impl BenchVerb {
    /// Returns whether stderr must contain only events, as lines of JSON.
    pub fn emits_events(&self) -> bool {
        match self {
            Self::Flight(args) => args.json,
            Self::Path(args) => args.json,
            Self::PathEmulator(_) => false,
            Self::Query(args) => args.json,
            Self::Shuffle(args) => args.json,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Aligned columns
    Table,
    /// JSON
    Json,
}
