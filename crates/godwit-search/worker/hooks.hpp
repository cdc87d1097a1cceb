// Hooks between the stages of the NCBI engine, which itself is not modified.
//
// The engine is a set of shared libraries that call each other through the dynamic linker. Three of these calls reach
// functions of the same names in this program. These functions call the hooks and then the library's function, except
// where a hook replaces it.
#pragma once

#include <functional>

#include <algo/blast/core/blast_hits.h>
#include <algo/blast/core/blast_hspstream.h>
#include <algo/blast/core/blast_seqsrc.h>
#include <objtools/blast/seqdb_reader/seqdb.hpp>

/// The range that the engine searches, the callbacks of the search, and its counters.
struct EngineHooks {
    /// The database of the subjects.
    ncbi::CSeqDB* database = NULL;
    /// Subjects to search: ordinals [begin, end), 0-based. A new pass over the database starts at `begin`; `next` is the
    /// next candidate.
    int begin = 0;
    int next = 0;
    int end = 0;
    /// Called at the end of the range; returns true if it has set a further range.
    std::function<bool()> on_range_end;
    /// True until the engine receives the first subject of the range.
    bool is_at_range_start = false;
    /// Called immediately before the engine receives the first subject of a range.
    std::function<void()> on_first_subject;

    /// Number of ungapped extensions that the engine has kept since this counter was last set to 0. BlastUngappedStats has
    /// the same count as good_init_extends.
    int64_t extensions = 0;
    /// The stream to which the engine last wrote hits.
    BlastHSPStream* stream = NULL;
    /// Receives each list in place of the stream and frees it. If this is empty, the stream receives the lists.
    std::function<void(BlastHSPList*)> on_hits;
    /// Called with the stream of a part of a split query, before the engine merges it with the others.
    std::function<void(uint32_t chunk, BlastHSPStream* stream)> on_merge;

    /// Sets the subjects to search: ordinals [first, last).
    void SetRange(int first, int last) {
        begin = next = first;
        end = last;
        is_at_range_start = true;
    }
};

/// The hooks of this process, which searches with one thread.
extern EngineHooks g_Hooks;

/// Makes `source` iterate over the range of `g_Hooks`.
void InstallRangeIterator(BlastSeqSrc* source);
