#include "hooks.hpp"

#include <climits>

#include <dlfcn.h>

#include <algo/blast/core/blast_diagnostics.h>
#include <algo/blast/core/blast_seqsrc_impl.h>

Watch g_Watch;

namespace {

/// The library's function of a name.
template <typename Function> Function* Original(const char* name) {
    void* found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "the NCBI libraries have no function %s\n", name);
        abort();
    }
    return reinterpret_cast<Function*>(found);
}

Int4 NextSubject(void*, BlastSeqSrcIterator* iterator) {
    if (iterator->current_pos == UINT_MAX) {
        iterator->current_pos = 0;
        g_Watch.next = g_Watch.begin;
    }
    for (;;) {
        int oid = g_Watch.next;
        if (oid < g_Watch.end && g_Watch.database->CheckOrFindOID(oid) && oid < g_Watch.end) {
            g_Watch.next = oid + 1;
            if (g_Watch.is_new && g_Watch.begun) g_Watch.begun();
            g_Watch.is_new = false;
            return oid;
        }
        g_Watch.next = g_Watch.end;
        if (!g_Watch.advance || !g_Watch.advance()) return BLAST_SEQSRC_EOF;
    }
}

/// Passes over the database begin with a new iterator, and need no other sign.
void ResetNothing(void*) {}

}  // namespace

void GuideIterator(BlastSeqSrc* source) {
    _BlastSeqSrcImpl_SetIterNext(source, NextSubject);
    _BlastSeqSrcImpl_SetResetChunkIterator(source, ResetNothing);
}

extern "C" {

void Blast_UngappedStatsUpdate(BlastUngappedStats* stats, Int4 total_hits, Int4 extended_hits, Int4 saved_hits) {
    static auto* const original = Original<decltype(Blast_UngappedStatsUpdate)>("Blast_UngappedStatsUpdate");
    g_Watch.extensions += saved_hits;
    original(stats, total_hits, extended_hits, saved_hits);
}

int BlastHSPStreamWrite(BlastHSPStream* stream, BlastHSPList** list) {
    static auto* const original = Original<decltype(BlastHSPStreamWrite)>("BlastHSPStreamWrite");
    g_Watch.stream = stream;
    if (g_Watch.take && list != NULL && *list != NULL) {
        g_Watch.take(*list);
        *list = NULL;
        return kBlastHSPStream_Success;
    }
    return original(stream, list);
}

int BlastHSPStreamMerge(SSplitQueryBlk* split, Uint4 chunk, BlastHSPStream* stream, BlastHSPStream* combined) {
    static auto* const original = Original<decltype(BlastHSPStreamMerge)>("BlastHSPStreamMerge");
    if (g_Watch.merge) g_Watch.merge(chunk, stream);
    return original(split, chunk, stream, combined);
}

}  // extern "C"
