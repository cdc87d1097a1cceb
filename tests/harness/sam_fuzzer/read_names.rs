//! Read names with the position of a cluster on the flow cell, in all forms in use, and names without one.
//!
//! Picard 3.4.0 takes tile, x and y from the last three of 5 or 7 fields between colons, parses each up to its first
//! character that is not a digit, lets numbers overflow, and keeps tile, x and y as 16 bits (`ReadNameParser`,
//! `PhysicalLocationShort`).

use crate::random::Random;

/// The position of a cluster on the flow cell, as written in names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) tile: i64,
    pub(super) x: i64,
    pub(super) y: i64,
}

/// The coordinates around which the clusters of a file are placed. Some are close to the limits of 16-bit numbers.
const ORIGINS: [i64; 6] = [1000, 1000, 20_000, 32_700, 65_500, -40];

/// Draws a position within about three optical distances of an origin.
pub(super) fn random_cluster(origin: Cluster, random: &mut Random) -> Cluster {
    let step = |random: &mut Random| *random.pick(&[0, 1, 50, 90, 99, 100, 101, 150, 200, 290]);
    let tile = if random.chance(0.9) { origin.tile } else { origin.tile + 1 };
    Cluster { tile, x: origin.x + step(random), y: origin.y + step(random) }
}

/// Draws an origin for a file.
pub(super) fn random_origin(random: &mut Random) -> Cluster {
    let tile = *random.pick(&[1101, 1101, 1101, 2, 32_767, 40_000, -2]);
    Cluster { tile, x: *random.pick(&ORIGINS), y: *random.pick(&ORIGINS) }
}

/// Returns a name of the usual form for template `serial`.
pub(super) fn illumina_name(serial: usize, cluster: Cluster, random: &mut Random) -> String {
    let Cluster { tile, x, y } = cluster;
    match random.below(4) {
        0 => format!("I{serial}:1:{tile}:{x}:{y}"),
        _ => format!("I:{serial}:F:1:{tile}:{x}:{y}"),
    }
}

/// Returns a name of an unusual form for template `serial`: too few or too many fields, or fields that are not plain
/// numbers.
pub(super) fn nonstandard_name(serial: usize, cluster: Cluster, random: &mut Random) -> String {
    let Cluster { tile, x, y } = cluster;
    match random.below(12) {
        0 => format!("q{serial}"),
        1 => format!("{serial}:{x}:{y}"),
        2 => format!("I{serial}:{tile}:{x}:{y}"),
        3 => format!("I:{serial}:1:{tile}:{x}:{y}"),
        4 => format!("I:{serial}:F:1:L:{tile}:{x}:{y}"),
        5 => format!(":{serial}:F:1:{tile}:{x}:{y}"),
        6 => format!("I:{serial}:F:1:{tile}:{x}:{y}#ACGT/1"),
        7 => format!("I:{serial}:F:1:{tile}s:{x}_:{y}.5"),
        _ => {
            let field = |value: i64, random: &mut Random| match random.below(9) {
                0 => String::new(),
                1 => "abc".to_owned(),
                2 => "-".to_owned(),
                3 => format!("+{value}"),
                4 => format!("00{value}"),
                5 => format!("{}", value + 65_536),
                6 => "99999999999".to_owned(),
                7 => "-1".to_owned(),
                _ => format!("{value}"),
            };
            let fields = [field(tile, random), field(x, random), field(y, random)].join(":");
            if random.chance(0.5) { format!("I:{serial}:F:1:{fields}") } else { format!("I{serial}:1:{fields}") }
        }
    }
}
