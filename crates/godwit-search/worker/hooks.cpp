#include "hooks.hpp"

#include <climits>

#include <dlfcn.h>

#include <algo/blast/core/blast_diagnostics.h>
#include <algo/blast/core/blast_seqsrc_impl.h>

EngineHooks g_Hooks;

namespace {

/// Returns the library's function `name`. Aborts the process if the libraries do not have it.
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
        g_Hooks.next = g_Hooks.begin;
    }
    for (;;) {
        int oid = g_Hooks.next;
        if (oid < g_Hooks.end && g_Hooks.database->CheckOrFindOID(oid) && oid < g_Hooks.end) {
            g_Hooks.next = oid + 1;
            if (g_Hooks.is_at_range_start && g_Hooks.on_first_subject) g_Hooks.on_first_subject();
            g_Hooks.is_at_range_start = false;
            return oid;
        }
        g_Hooks.next = g_Hooks.end;
        if (!g_Hooks.on_range_end || !g_Hooks.on_range_end()) return BLAST_SEQSRC_EOF;
    }
}

/// Does nothing: each pass over the database starts with a new iterator, which NextSubject recognizes.
void ResetNothing(void*) {}

}  // namespace

void InstallRangeIterator(BlastSeqSrc* source) {
    _BlastSeqSrcImpl_SetIterNext(source, NextSubject);
    _BlastSeqSrcImpl_SetResetChunkIterator(source, ResetNothing);
}

extern "C" {

void Blast_UngappedStatsUpdate(BlastUngappedStats* stats, Int4 total_hits, Int4 extended_hits, Int4 saved_hits) {
    static auto* const original = Original<decltype(Blast_UngappedStatsUpdate)>("Blast_UngappedStatsUpdate");
    g_Hooks.extensions += saved_hits;
    original(stats, total_hits, extended_hits, saved_hits);
}

int BlastHSPStreamWrite(BlastHSPStream* stream, BlastHSPList** list) {
    static auto* const original = Original<decltype(BlastHSPStreamWrite)>("BlastHSPStreamWrite");
    g_Hooks.stream = stream;
    if (g_Hooks.on_hits && list != NULL && *list != NULL) {
        g_Hooks.on_hits(*list);
        *list = NULL;
        return kBlastHSPStream_Success;
    }
    return original(stream, list);
}

int BlastHSPStreamMerge(SSplitQueryBlk* split, Uint4 chunk, BlastHSPStream* stream, BlastHSPStream* combined) {
    static auto* const original = Original<decltype(BlastHSPStreamMerge)>("BlastHSPStreamMerge");
    if (g_Hooks.on_merge) g_Hooks.on_merge(chunk, stream);
    return original(split, chunk, stream, combined);
}

}  // extern "C"
