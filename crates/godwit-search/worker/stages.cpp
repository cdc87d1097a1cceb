// The stages of a search: hits out of the engine, hits into it, the report.
#include <ncbi_pch.hpp>

#include <algo/blast/api/objmgr_query_data.hpp>
#include <algo/blast/api/setup_factory.hpp>
#include <algo/blast/api/traceback_stage.hpp>
#include <algo/blast/core/blast_hspfilter.h>
#include <objtools/align_format/showalign.hpp>
#include <objtools/align_format/tabular.hpp>

#include "engine.hpp"
#include "hooks.hpp"
#include "stage_clock.hpp"

USING_NCBI_SCOPE;
USING_SCOPE(blast);
USING_SCOPE(objects);
USING_SCOPE(align_format);

namespace {

/// Empties the watch on the way out, errors included.
class WatchScope {
public:
    ~WatchScope() {
        g_Watch.advance = nullptr;
        g_Watch.take = nullptr;
        g_Watch.merge = nullptr;
        g_Watch.begun = nullptr;
        g_Watch.stream = NULL;
    }
};

}  // namespace

void CEngine::Prepare() {
    // Each search has a factory of its own: one that is shared loses the masks of low complexity.
    m_Factory.Reset(new CObjMgr_QueryFactory(*m_Queries));
    m_Data.Reset();
    m_Prelim.Reset(new CBlastPrelimSearch(m_Factory, CRef<CBlastOptions>(&m_Options->SetOptions()), m_Database));
}

void CEngine::Iterate() {
    m_Data = m_Prelim->Run();
}

/// Takes the hits that a stream has kept for each query.
void CEngine::TakeStream(BlastHSPStream* stream, uint32_t chunk, const Range& range, RangeHits& into) {
    if (stream == NULL || stream->results == NULL) return;
    for (Int4 query = 0; query < stream->results->num_queries; ++query) {
        BlastHitList*& kept = stream->results->hitlist_array[query];
        if (kept == NULL) continue;
        // A query that was split has a list for each of its parts, and then one of what these kept.
        if (!m_Split) into.most = uint32_t(kept->hsplist_max);
        const auto worst = range.worst.find(query);
        FrameWriter to;
        for (Int4 index = 0; index < kept->hsplist_count; ++index) {
            BlastHSPList& list = *kept->hsplist_array[index];
            // blastn leaves 0 there whatever the query is.
            list.query_index = query;
            if (!m_Split && worst != range.worst.end() && list.best_evalue > worst->second) {
                ++into.dropped;
            } else {
                PutHits(to, list, chunk);
            }
        }
        into.hits[m_Info.whole ? 0 : query] += to.Bytes();
        kept = Blast_HitListFree(kept);
    }
}

void CEngine::Search(Range range, const function<bool(RangeHits&&, Range&)>& next) {
    StageClock clock(m_Seconds.search);
    WatchScope scope;
    const size_t groups = m_Info.whole ? 1 : m_Info.queries;
    RangeHits found;
    found.hits.resize(groups);
    g_Watch.extensions = 0;
    bool merged = false;
    // The first range of a batch waits for the tables of its queries; others follow when the one before is done.
    double ended = -1;
    g_Watch.begun = [&]() {
        if (ended < 0) return;
        m_Seconds.range_starts += StageClock::Now() - ended;
        ++m_Seconds.ranges_started;
    };
    // Hands over what was found, and asks for more.
    const auto deliver = [&]() {
        ended = StageClock::Now();
        if (!m_Raw && !merged) TakeStream(g_Watch.stream, 0, range, found);
        found.extensions = g_Watch.extensions;
        g_Watch.extensions = 0;
        RangeHits done = std::move(found);
        found = RangeHits();
        found.hits.resize(groups);
        if (!next(std::move(done), range)) return false;
        g_Watch.SetRange(int(range.first), int(range.last));
        return true;
    };
    if (m_Raw) {
        g_Watch.take = [&](BlastHSPList* list) {
            FrameWriter to;
            PutHits(to, *list, 0);
            found.hits[0] += to.Bytes();
            Blast_HSPListFree(list);
        };
    }
    g_Watch.SetRange(int(range.first), int(range.last));
    if (!m_Split) {
        if (m_Prelim.Empty() || m_Data.NotEmpty()) Prepare();
        g_Watch.advance = deliver;
        Iterate();
        return;
    }
    // The engine goes over the database once for each part of the queries: a range at a time, then.
    if (m_Raw) throw std::invalid_argument("-culling_limit, -best_hit_* and -subject_besthit with queries of this length");
    for (bool more = true; more;) {
        g_Watch.merge = [&](uint32_t chunk, BlastHSPStream* stream) {
            merged = true;
            TakeStream(stream, chunk, range, found);
        };
        Prepare();
        Iterate();
        g_Watch.merge = nullptr;
        more = deliver();
    }
    m_Data.Reset();
}

/// A stream as the engine makes it, for one more traceback.
void CEngine::FreshStream() {
    const CBlastOptionsMemento* memento = m_Options->GetOptions().CreateSnapshot();
    BlastHSPWriter* writer = CSetupFactory::CreateHspWriter(memento, m_Data->m_Queries, m_Data->m_QueryInfo);
    BlastHSPStream* stream = CSetupFactory::CreateHspStream(memento, size_t(m_Data->m_QueryInfo->num_queries), writer);
    BlastHSPPipe* pipe = CSetupFactory::CreateHspPipe(memento, m_Data->m_QueryInfo);
    BlastHSPStreamRegisterPipe(stream, pipe, eTracebackSearch);
    // A structure of pointers that it does not own, from `new`; its definition is private to the library.
    operator delete(const_cast<void*>(static_cast<const void*>(memento)));
    m_Data->m_HspStream.Reset(new TBlastHSPStream(stream, BlastHSPStreamFree));
}

/// Gives lists to the engine as if it had just found them. What a stream keeps it owns.
void CEngine::Give(vector<HitList>& hits) {
    if (!m_Split) {
        if (m_Prelim.Empty()) Prepare();
        if (m_Data.Empty()) {
            g_Watch.SetRange(0, 0);
            Iterate();
        }
        FreshStream();
        BlastHSPStream* stream = m_Data->m_HspStream->GetPointer();
        for (HitList& hit : hits) BlastHSPStreamWrite(stream, &hit.list);
        return;
    }
    size_t next = 0;
    g_Watch.merge = [&](uint32_t chunk, BlastHSPStream* stream) {
        for (; next < hits.size() && hits[next].chunk == chunk; ++next) BlastHSPStreamWrite(stream, &hits[next].list);
    };
    Prepare();
    g_Watch.SetRange(0, 0);
    Iterate();
}

void CEngine::Report(uint32_t first, uint32_t last, const string& bytes, string& report) {
    CRef<CSearchResultSet> results;
    {
        StageClock clock(m_Seconds.traceback);
        WatchScope scope;
        vector<HitList> hits = GetHits(bytes);
        Give(hits);
        TSearchMessages messages = m_Prelim->GetSearchMessages();
        CRef<IBlastSeqInfoSrc> subjects(m_Database->MakeSeqInfoSrc());
        CBlastTracebackSearch traceback(m_Factory, m_Data, CRef<CBlastOptions>(&m_Options->SetOptions()), subjects, messages);
        traceback.SetNumberOfThreads(1);
        results = traceback.Run();
        results->SetFilteredQueryRegions(m_Prelim->GetFilteredQueryRegions());
    }
    Print(*results, first, last, report);
}

void CEngine::ReportAlone(uint32_t first, uint32_t last, string& report) {
    CRef<CSearchResultSet> results;
    {
        StageClock clock(m_Seconds.search);
        WatchScope scope;
        g_Watch.SetRange(0, int(SequenceCount()));
        m_Prelim.Reset();
        m_Data.Reset();
        m_Factory.Reset(new CObjMgr_QueryFactory(*m_Queries));
        CLocalBlast search(m_Factory, m_Options, m_Database);
        search.SetNumberOfThreads(1);
        results = search.Run();
    }
    Print(*results, first, last, report);
}

void CEngine::Print(const CSearchResultSet& results, uint32_t first, uint32_t last, string& report) {
    StageClock clock(m_Seconds.format);
    if (m_IsArchive) {
        m_Formatter->WriteArchive(*m_Factory, *m_Options, results);
    } else {
        BlastFormatter_PreFetchSequenceData(results, m_Scope, m_Arguments->GetFormattingArgs()->GetFormattedOutputChoice());
        for (uint32_t query = first; query < last; ++query) {
            const int before = int(m_Before + query);
            m_Formatter->m_QueriesFormatted = before;
            m_Formatter->m_XMLFileCount = before;
            if (m_Formatter->m_BlastXMLIncremental.NotEmpty()) m_Formatter->m_BlastXMLIncremental->m_IterationNum = before;
            m_Formatter->PrintOneResultSet(results[query], m_Queries);
        }
    }
    if (m_IsSam) {
        CSAM_Formatter& sam = *m_Formatter->m_SamFormatter;
        FrameWriter lines;
        for (const auto& [id, line] : sam.m_Header.m_Data) {
            lines.PutText(id.AsString());
            lines.PutText(line);
        }
        m_HeaderLines = lines.Take();
        for (const string& line : sam.m_Body) m_Printed << line << '\n';
        sam.m_Header.m_Data.clear();
        sam.m_Body.clear();
    }
    report = m_Printed.str();
    m_Printed.str(string());
    if (m_RowFields.empty()) return;
    // After the report, for this adds scores to the alignments.
    FrameWriter rows;
    for (uint32_t query = first; query < last; ++query) PutRows(results[query], m_Before + query, rows);
    m_Rows = rows.Take();
}

/// As the formatter makes a table, whatever the format of the report.
void CEngine::PutRows(const CSearchResults& results, uint32_t query, FrameWriter& to) {
    if (results.HasErrors() || !results.HasAlignments()) return;
    CConstRef<CSeq_align_set> found = results.GetSeqAlign();
    if (m_Formatter->m_IsUngappedSearch) found.Reset(CDisplaySeqalign::PrepareBlastUngappedSeqalign(*found));
    CSeq_align_set shown;
    CBlastFormatUtil::PruneSeqalign(*found, shown, unsigned(m_Formatter->m_HitlistSize));
    const CBioseq_Handle sequence = m_Scope->GetBioseqHandle(*results.GetSeqId(), CScope::eGetBioseq_All);
    CBlastFormatUtil::InsertSubjectScores(shown, sequence, m_Formatter->m_QueryRange);
    ostringstream line;
    CBlastTabularInfo table(line, m_RowFields);
    table.SetCustomDelim("\x1f");
    table.SetParseLocalIds(m_Formatter->m_BelieveQuery);
    table.SetNoFetch(m_Program == "blastn");
    table.SetQueryRange(m_Formatter->m_QueryRange);
    table.SetQueryGeneticCode(m_Formatter->m_QueryGenCode);
    table.SetDbGeneticCode(m_Formatter->m_DbGenCode);
    for (const CRef<CSeq_align>& alignment : shown.Get()) {
        table.SetFields(*alignment, *m_Scope, &m_Formatter->m_ScoringMatrix);
        table.Print();
        string printed = line.str();
        line.str(string());
        if (!printed.empty() && printed.back() == '\n') printed.pop_back();
        // As the table has them, which takes the e-value of a set of alignments for theirs.
        double evalue = 0, bits = 0;
        int score = 0, in_set = 0, identical = 0;
        list<TGi> numbers;
        CAlignFormatUtil::GetAlnScores(*alignment, score, bits, evalue, in_set, identical, numbers);
        to.Put<uint64_t>(query);
        to.Put<double>(evalue);
        to.Put<double>(bits);
        to.PutText(printed);
    }
}

string CEngine::TakeRows() { return std::move(m_Rows); }

string CEngine::Prolog() {
    m_Formatter->PrintProlog();
    string text = m_Printed.str();
    m_Printed.str(string());
    return text;
}

string CEngine::Epilog(uint32_t queries) {
    m_Formatter->m_QueriesFormatted = int(queries);
    m_Formatter->m_XMLFileCount = int(queries);
    m_Formatter->PrintEpilog(m_Options->GetOptions());
    string text = m_Printed.str();
    m_Printed.str(string());
    return text;
}

string CEngine::TakeHeaderLines() { return std::move(m_HeaderLines); }

string CEngine::Header(const string& lines) {
    CSAM_Formatter& sam = *m_Formatter->m_SamFormatter;
    FrameReader from(lines);
    while (!from.AtEnd()) {
        const CSeq_id_Handle id = CSeq_id_Handle::GetHandle(from.GetText());
        sam.m_Header.AddSequence(id, from.GetText());
    }
    sam.Flush();
    string text = m_Printed.str();
    m_Printed.str(string());
    return text;
}
