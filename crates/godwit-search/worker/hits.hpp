// HSP lists of the preliminary search as bytes: 24 bytes for a list and 66 bytes for each of its HSPs.
#pragma once

#include <vector>

#include <algo/blast/core/blast_hits.h>

#include "frames.hpp"

/// The HSPs of one subject after the preliminary search.
struct HitList {
    BlastHSPList* list;
    /// Index of the part of a split query; 0 if no query was split.
    uint32_t chunk;
};

/// Appends a list to the bytes of a message.
///
/// Throws std::logic_error if an HSP has a traceback, a pattern or mapping data, which no supported program produces.
void PutHits(FrameWriter& to, const BlastHSPList& list, uint32_t chunk);

/// Reads all lists from `bytes` and sorts them by chunk and subject. The caller owns the lists.
std::vector<HitList> GetHits(const std::string& bytes);
