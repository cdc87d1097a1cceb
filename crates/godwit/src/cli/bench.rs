//! What can be measured.

use clap::{Subcommand, ValueEnum};

use super::{BenchFlightArgs, BenchPathArgs, BenchQueryArgs, BenchShuffleArgs, PathEmulatorArgs};

#[derive(Subcommand)]
pub enum BenchVerb {
    /// Throughput of Arrow Flight, between two processes here or to a server started with --listen
    #[command(after_help = "Example:\n  godwit bench flight --method get --streams 1,2,4 --bytes 1G")]
    Flight(BenchFlightArgs),
    /// Throughput of `godwit copy` over a long network path that is emulated here; needs root
    #[command(after_help = "Example:\n  sudo godwit bench path --rate 1G --rtt 100 --loss 0.0001")]
    Path(BenchPathArgs),
    /// The emulator of `path` alone
    #[command(hide = true)]
    PathEmulator(PathEmulatorArgs),
    /// Latency and throughput of SQL statements, at a server or over a directory that is served for it
    #[command(
        after_help = "Example:\n  godwit bench query --data out --clients 1,4 \"SELECT count(*) FROM reads('S.bam')\""
    )]
    Query(BenchQueryArgs),
    /// Throughput of a shuffle, all nodes to all nodes: processes of this machine, or peers started with --listen
    #[command(after_help = "Example:\n  godwit bench shuffle --nodes 1,2,4,8 --bytes 64M,256M")]
    Shuffle(BenchShuffleArgs),
}

impl BenchVerb {
    /// Whether stderr is for programs: events as JSON lines.
    pub fn tells_events(&self) -> bool {
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
    /// For people
    Table,
    /// For programs
    Json,
}
