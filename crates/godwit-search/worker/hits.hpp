// Lists of HSPs of the preliminary search as bytes: 66 a HSP and 24 a list.
#pragma once

#include <vector>

#include <algo/blast/core/blast_hits.h>

#include "frames.hpp"

/// The HSPs of one subject, as the preliminary search left them.
struct HitList {
    BlastHSPList* list;
    /// Which part of a query that was split; 0 where none was.
    uint32_t chunk;
};

/// Appends a list to the bytes of a message.
///
/// Throws where the list carries what only other programs than ours fill in.
void PutHits(FrameWriter& to, const BlastHSPList& list, uint32_t chunk);

/// Reads all lists there are, in ascending order of chunk and subject. The caller owns them.
std::vector<HitList> GetHits(const std::string& bytes);
