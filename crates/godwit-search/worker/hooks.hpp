// What is seen and given between the stages of the NCBI engine, which itself stays as it is.
//
// The engine is a set of shared libraries that call each other through the dynamic linker. Three of those calls go through
// functions of the same names in this program, which look, and call the library's.
#pragma once

#include <functional>

#include <algo/blast/core/blast_hits.h>
#include <algo/blast/core/blast_hspstream.h>
#include <algo/blast/core/blast_seqsrc.h>
#include <objtools/blast/seqdb_reader/seqdb.hpp>

/// What the engine is made to search, and what it is seen doing.
struct Watch {
    /// The database that subjects come from.
    ncbi::CSeqDB* database = NULL;
    /// Subjects to search: ordinals [begin, end). A new pass over the database starts at `begin`.
    int begin = 0;
    int next = 0;
    int end = 0;
    /// Called when the range is done; returns whether it set another.
    std::function<bool()> advance;
    /// No subject of the range was given yet.
    bool is_new = false;
    /// Called with the first subject of a range.
    std::function<void()> begun;

    /// The ungapped extensions that were kept since this was last set to 0; as BlastUngappedStats counts good_init_extends.
    int64_t extensions = 0;
    /// The stream that hits were last written to.
    BlastHSPStream* stream = NULL;
    /// Takes each list before any stream does, and frees it; empty: lists go to the stream.
    std::function<void(BlastHSPList*)> take;
    /// Called with the stream of a part of a split query before it is merged with the others.
    std::function<void(uint32_t chunk, BlastHSPStream* stream)> merge;

    /// From here on [first, last) is searched.
    void SetRange(int first, int last) {
        begin = next = first;
        end = last;
        is_new = true;
    }
};

/// Of this process, which searches with one thread.
extern Watch g_Watch;

/// Makes the iterator of a source of sequences go over the range of `g_Watch`.
void GuideIterator(BlastSeqSrc* source);
