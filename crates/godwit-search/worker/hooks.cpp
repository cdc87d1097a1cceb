#include "hooks.hpp"

#include <algorithm>
#include <climits>

#include <dlfcn.h>

#include <algo/blast/core/blast_diagnostics.h>
#include <algo/blast/core/blast_gapalign.h>
#include <algo/blast/core/blast_query_info.h>
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

uint64_t KeyOf(int query, int oid) { return (uint64_t(uint32_t(query)) << 32) | uint32_t(oid); }

/// Remembers the scores of the subject that is done.
void FinishSubject() {
    for (const auto& [query, score] : g_Watch.ungapped_now) g_Watch.ungapped[KeyOf(query, g_Watch.subject)] = score;
    g_Watch.ungapped_now.clear();
}

Int4 NextSubject(void*, BlastSeqSrcIterator* iterator) {
    if (iterator->current_pos == UINT_MAX) {
        iterator->current_pos = 0;
        g_Watch.next = g_Watch.begin;
    }
    FinishSubject();
    for (;;) {
        int oid = g_Watch.next;
        if (oid < g_Watch.end && g_Watch.database->CheckOrFindOID(oid) && oid < g_Watch.end) {
            g_Watch.next = oid + 1;
            g_Watch.subject = oid;
            return oid;
        }
        g_Watch.next = g_Watch.end;
        if (!g_Watch.advance || !g_Watch.advance()) return BLAST_SEQSRC_EOF;
    }
}

/// Passes over the database begin with a new iterator, and need no other sign.
void ResetNothing(void*) {}

}  // namespace

int Watch::UngappedOf(int query, int oid) const {
    if (oid == subject) {
        const auto now = ungapped_now.find(query);
        if (now != ungapped_now.end()) return now->second;
    }
    const auto found = ungapped.find(KeyOf(query, oid));
    return found == ungapped.end() ? INT32_MAX : found->second;
}

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

Int2 BLAST_GetGappedScore(EBlastProgramType program, BLAST_SequenceBlk* query, BlastQueryInfo* query_info,
                          BLAST_SequenceBlk* subject, BlastGapAlignStruct* gap_align,
                          const BlastScoringParameters* score_params, const BlastExtensionParameters* ext_params,
                          const BlastHitSavingParameters* hit_params, const BlastInitialWordParameters* word_params,
                          BlastInitHitList* init_hitlist, BlastHSPList** hsp_list, BlastGappedStats* gapped_stats,
                          Boolean* fence_hit) {
    static auto* const original = Original<decltype(BLAST_GetGappedScore)>("BLAST_GetGappedScore");
    std::unordered_map<int, int> best;
    for (Int4 index = 0; init_hitlist != NULL && index < init_hitlist->total; ++index) {
        const BlastInitHSP& hit = init_hitlist->init_hsp_array[index];
        if (hit.ungapped_data == NULL) continue;
        const Int4 context = BSearchContextInfo(hit.offsets.qs_offsets.q_off, query_info);
        int& score = best[query_info->contexts[context].query_index];
        score = std::max(score, int(hit.ungapped_data->score));
    }
    for (const auto& [index, score] : best) {
        const auto [known, added] = g_Watch.ungapped_now.emplace(index, score);
        if (!added) known->second = std::min(known->second, score);
    }
    return original(program, query, query_info, subject, gap_align, score_params, ext_params, hit_params, word_params,
                    init_hitlist, hsp_list, gapped_stats, fence_hit);
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
