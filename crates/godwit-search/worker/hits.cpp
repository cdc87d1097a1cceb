#include "hits.hpp"

#include <algorithm>
#include <cstdlib>

namespace {

void PutSegment(FrameWriter& to, const BlastSeg& segment) {
    to.Put<int16_t>(segment.frame);
    to.Put<int32_t>(segment.offset);
    to.Put<int32_t>(segment.end);
    to.Put<int32_t>(segment.gapped_start);
}

BlastSeg GetSegment(FrameReader& from) {
    BlastSeg segment = {};
    segment.frame = from.Get<int16_t>();
    segment.offset = from.Get<int32_t>();
    segment.end = from.Get<int32_t>();
    segment.gapped_start = from.Get<int32_t>();
    return segment;
}

void PutHsp(FrameWriter& to, const BlastHSP& hsp) {
    if (hsp.gap_info != NULL || hsp.pat_info != NULL || hsp.map_info != NULL) {
        throw std::logic_error("the preliminary search left a traceback, which no searched program does");
    }
    to.Put<int32_t>(hsp.score);
    to.Put<int32_t>(hsp.num_ident);
    to.Put<double>(hsp.bit_score);
    to.Put<double>(hsp.evalue);
    PutSegment(to, hsp.query);
    PutSegment(to, hsp.subject);
    to.Put<int32_t>(hsp.context);
    to.Put<int32_t>(hsp.num);
    to.Put<int16_t>(hsp.comp_adjustment_method);
    to.Put<int32_t>(hsp.num_positives);
}

BlastHSP* GetHsp(FrameReader& from) {
    BlastHSP* hsp = Blast_HSPNew();
    if (hsp == NULL) throw std::bad_alloc();
    hsp->score = from.Get<int32_t>();
    hsp->num_ident = from.Get<int32_t>();
    hsp->bit_score = from.Get<double>();
    hsp->evalue = from.Get<double>();
    hsp->query = GetSegment(from);
    hsp->subject = GetSegment(from);
    hsp->context = from.Get<int32_t>();
    hsp->num = from.Get<int32_t>();
    hsp->comp_adjustment_method = from.Get<int16_t>();
    hsp->num_positives = from.Get<int32_t>();
    return hsp;
}

}  // namespace

void PutHits(FrameWriter& to, const BlastHSPList& list, uint32_t chunk) {
    to.Put<uint32_t>(chunk);
    to.Put<int32_t>(list.oid);
    to.Put<int32_t>(list.query_index);
    to.Put<double>(list.best_evalue);
    to.Put<uint32_t>(list.hspcnt);
    for (Int4 index = 0; index < list.hspcnt; ++index) PutHsp(to, *list.hsp_array[index]);
}

std::vector<HitList> GetHits(const std::string& bytes) {
    std::vector<HitList> hits;
    FrameReader from(bytes);
    while (!from.AtEnd()) {
        HitList hit = {};
        hit.chunk = from.Get<uint32_t>();
        const Int4 oid = from.Get<int32_t>();
        const Int4 query = from.Get<int32_t>();
        const double best = from.Get<double>();
        const uint32_t count = from.Get<uint32_t>();
        BlastHSPList* list = Blast_HSPListNew(0);
        if (list == NULL) throw std::bad_alloc();
        list->oid = oid;
        list->query_index = query;
        list->best_evalue = best;
        for (uint32_t index = 0; index < count; ++index) Blast_HSPListSaveHSP(list, GetHsp(from));
        hit.list = list;
        hits.push_back(hit);
    }
    // A search by a single process finds the subjects in this order.
    std::stable_sort(hits.begin(), hits.end(), [](const HitList& left, const HitList& right) {
        return left.chunk != right.chunk ? left.chunk < right.chunk : left.list->oid < right.list->oid;
    });
    return hits;
}
