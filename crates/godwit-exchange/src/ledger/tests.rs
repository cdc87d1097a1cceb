use super::*;

fn block(ordinal: u32) -> BlockId {
    BlockId { lane: 0, ordinal }
}

const NOW: Duration = Duration::ZERO;
