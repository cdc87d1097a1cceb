// The stages of a search: collecting hits from the engine, submitting hits to it, and formatting the report.
#include <ncbi_pch.hpp>

#include <sys/mman.h>

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

/// A guard that clears the hooks at the end of its scope, also after an exception.
class HooksScope {
public:
    ~HooksScope() {
        g_Hooks.on_range_end = nullptr;
        g_Hooks.on_hits = nullptr;
        g_Hooks.on_merge = nullptr;
        g_Hooks.on_first_subject = nullptr;
        g_Hooks.stream = NULL;
    }
};

/// Advises the kernel how this process reads the sequences and headers of the database that it has mapped. With
/// MADV_RANDOM the kernel reads only the pages that are used; otherwise it reads many pages around each of them.
void AdviseDatabaseReads(int advice) {
    ifstream maps("/proc/self/maps");
    for (string line; getline(maps, line);) {
        const string ending = line.size() < 4 ? string() : line.substr(line.size() - 4);
        if (ending != ".psq" && ending != ".nsq" && ending != ".phr" && ending != ".nhr") continue;
        unsigned long start = 0, end = 0;
        // The advice changes only the speed, so a failure is ignored.
        if (sscanf(line.c_str(), "%lx-%lx", &start, &end) == 2) madvise(reinterpret_cast<void*>(start), end - start, advice);
    }
}

}  // namespace

/// Tells the kernel whether the next reads of the database are random. The files that are mapped may have changed since the
/// last advice of random reads.
void CEngine::SetReadsRandomly(bool reads_randomly) {
    if (reads_randomly || m_ReadsRandomly) AdviseDatabaseReads(reads_randomly ? MADV_RANDOM : MADV_NORMAL);
    m_ReadsRandomly = reads_randomly;
}

void CEngine::Prepare() {
    // Each search has its own query factory, because a shared factory loses the low-complexity masks.
    m_Factory.Reset(new CObjMgr_QueryFactory(*m_Queries));
    m_Data.Reset();
    m_Prelim.Reset(new CBlastPrelimSearch(m_Factory, CRef<CBlastOptions>(&m_Options->SetOptions()), m_Database));
}

void CEngine::RunPreliminarySearch() {
    m_Data = m_Prelim->Run();
}

/// Moves the hits that a stream has stored for each query to `into`, as bytes.
void CEngine::CollectHits(BlastHSPStream* stream, uint32_t chunk, const Range& range, RangeHits& into) {
    if (stream == NULL || stream->results == NULL) return;
    for (Int4 query = 0; query < stream->results->num_queries; ++query) {
        BlastHitList*& kept = stream->results->hitlist_array[query];
        if (kept == NULL) continue;
        // A split query has a list for each of its parts, and then a list of the hits that these lists kept.
        if (!m_Split) into.list_capacity = uint32_t(kept->hsplist_max);
        const auto worst = range.evalue_thresholds.find(query);
        FrameWriter to;
        for (Int4 index = 0; index < kept->hsplist_count; ++index) {
            BlastHSPList& list = *kept->hsplist_array[index];
            // blastn leaves 0 in this field for every query.
            list.query_index = query;
            if (!m_Split && worst != range.evalue_thresholds.end() && list.best_evalue > worst->second) {
                ++into.dropped_subjects;
            } else {
                PutHits(to, list, chunk);
            }
        }
        into.hits[m_Info.has_joint_hits ? 0 : query] += to.Bytes();
        kept = Blast_HitListFree(kept);
    }
}

void CEngine::Search(Range range, const function<bool(RangeHits&&, Range&)>& next) {
    StageClock clock(m_Seconds.search);
    SetReadsRandomly(false);
    HooksScope scope;
    const size_t groups = m_Info.has_joint_hits ? 1 : m_Info.queries;
    RangeHits found;
    found.hits.resize(groups);
    g_Hooks.extensions = 0;
    bool merged = false;
    // The first range of a search is not measured, because its start includes the lookup tables of the queries.
    double ended = -1;
    g_Hooks.on_first_subject = [&]() {
        if (ended < 0) return;
        m_Seconds.range_starts += StageClock::Now() - ended;
        ++m_Seconds.ranges_started;
    };
    // Passes the result of a range to `next`, which may set a further range.
    const auto deliver = [&]() {
        ended = StageClock::Now();
        if (!m_KeepsUnfilteredHits && !merged) CollectHits(g_Hooks.stream, 0, range, found);
        found.extensions = g_Hooks.extensions;
        g_Hooks.extensions = 0;
        RangeHits done = std::move(found);
        found = RangeHits();
        found.hits.resize(groups);
        if (!next(std::move(done), range)) return false;
        g_Hooks.SetRange(int(range.first), int(range.last));
        return true;
    };
    if (m_KeepsUnfilteredHits) {
        g_Hooks.on_hits = [&](BlastHSPList* list) {
            FrameWriter to;
            PutHits(to, *list, 0);
            found.hits[0] += to.Bytes();
            Blast_HSPListFree(list);
        };
    }
    g_Hooks.SetRange(int(range.first), int(range.last));
    if (!m_Split) {
        if (m_Prelim.Empty() || m_Data.NotEmpty()) Prepare();
        g_Hooks.on_range_end = deliver;
        RunPreliminarySearch();
        return;
    }
    // The engine passes over the database once for each part of the queries, so each range is a search of its own.
    if (m_KeepsUnfilteredHits) {
        throw std::invalid_argument("-culling_limit, -best_hit_* and -subject_besthit with queries of this length");
    }
    for (bool more = true; more;) {
        g_Hooks.on_merge = [&](uint32_t chunk, BlastHSPStream* stream) {
            merged = true;
            CollectHits(stream, chunk, range, found);
        };
        Prepare();
        RunPreliminarySearch();
        g_Hooks.on_merge = nullptr;
        more = deliver();
    }
    m_Data.Reset();
}

/// Replaces the HSP stream with a new one, made as the engine makes it, for a further traceback.
void CEngine::ResetHspStream() {
    const CBlastOptionsMemento* memento = m_Options->GetOptions().CreateSnapshot();
    BlastHSPWriter* writer = CSetupFactory::CreateHspWriter(memento, m_Data->m_Queries, m_Data->m_QueryInfo);
    BlastHSPStream* stream = CSetupFactory::CreateHspStream(memento, size_t(m_Data->m_QueryInfo->num_queries), writer);
    BlastHSPPipe* pipe = CSetupFactory::CreateHspPipe(memento, m_Data->m_QueryInfo);
    BlastHSPStreamRegisterPipe(stream, pipe, eTracebackSearch);
    // The memento was allocated with `new` and does not own what its pointers refer to. Its definition is private to
    // the library.
    operator delete(const_cast<void*>(static_cast<const void*>(memento)));
    m_Data->m_HspStream.Reset(new TBlastHSPStream(stream, BlastHSPStreamFree));
}

/// Submits lists to the engine as if it had just found them. A stream owns the lists that it keeps.
void CEngine::SubmitHits(vector<HitList>& hits) {
    if (!m_Split) {
        if (m_Prelim.Empty()) Prepare();
        if (m_Data.Empty()) {
            g_Hooks.SetRange(0, 0);
            RunPreliminarySearch();
        }
        ResetHspStream();
        BlastHSPStream* stream = m_Data->m_HspStream->GetPointer();
        for (HitList& hit : hits) BlastHSPStreamWrite(stream, &hit.list);
        return;
    }
    size_t next = 0;
    g_Hooks.on_merge = [&](uint32_t chunk, BlastHSPStream* stream) {
        for (; next < hits.size() && hits[next].chunk == chunk; ++next) BlastHSPStreamWrite(stream, &hits[next].list);
    };
    Prepare();
    g_Hooks.SetRange(0, 0);
    RunPreliminarySearch();
}

/// Makes the libraries map the sequences and headers of the volumes, which they do when they read a volume for the first
/// time. Advice has no effect on files that are mapped later.
void CEngine::OpenDatabaseFiles() {
    m_FilesAreOpen = true;
    // Volumes have about the same size, so two sequences for each volume are at least one in nearly every volume.
    const uint64_t count = 2 * Volumes().size();
    for (uint64_t number = 0; number < count; ++number) {
        const int oid = int(number * SequenceCount() / count);
        const char* letters = NULL;
        m_SeqDb->GetSequence(oid, &letters);
        m_SeqDb->RetSequence(&letters);
        m_SeqDb->GetHdr(oid);
    }
}

void CEngine::Report(uint32_t first, uint32_t last, const string& bytes, bool reads_randomly, string& report) {
    CRef<CSearchResultSet> results;
    {
        StageClock clock(m_Seconds.traceback);
        // A worker that resumes a search may report before it searches.
        if (reads_randomly && !m_FilesAreOpen) OpenDatabaseFiles();
        SetReadsRandomly(reads_randomly);
        HooksScope scope;
        vector<HitList> hits = GetHits(bytes);
        SubmitHits(hits);
        TSearchMessages messages = m_Prelim->GetSearchMessages();
        CRef<IBlastSeqInfoSrc> subjects(m_Database->MakeSeqInfoSrc());
        CBlastTracebackSearch traceback(m_Factory, m_Data, CRef<CBlastOptions>(&m_Options->SetOptions()), subjects, messages);
        traceback.SetNumberOfThreads(1);
        results = traceback.Run();
        results->SetFilteredQueryRegions(m_Prelim->GetFilteredQueryRegions());
    }
    FormatReport(*results, first, last, report);
}

CRef<CSearchResultSet> CEngine::SearchAlone() {
    StageClock clock(m_Seconds.search);
    HooksScope scope;
    g_Hooks.SetRange(0, int(SequenceCount()));
    m_Prelim.Reset();
    m_Data.Reset();
    m_Factory.Reset(new CObjMgr_QueryFactory(*m_Queries));
    CLocalBlast search(m_Factory, m_Options, m_Database);
    search.SetNumberOfThreads(1);
    CRef<CSearchResultSet> results = search.Run();
    if (m_SizesVary) m_Extensions.push_back(search.GetNumExtensions());
    return results;
}

void CEngine::ReportAlone(uint32_t first, uint32_t last, string& report) {
    FormatReport(*SearchAlone(), first, last, report);
}

void CEngine::FormatReport(const CSearchResultSet& results, uint32_t first, uint32_t last, string& report) {
    StageClock clock(m_Seconds.format);
    if (m_IsArchive) {
        m_Formatter->WriteArchive(*m_Factory, *m_Options, results);
    } else {
        BlastFormatter_PreFetchSequenceData(results, m_Scope, m_Arguments->GetFormattingArgs()->GetFormattedOutputChoice());
        for (uint32_t query = first; query < last; ++query) {
            const int before = int(m_EarlierQueries + query);
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
        for (const string& line : sam.m_Body) m_FormatterOutput << line << '\n';
        sam.m_Header.m_Data.clear();
        sam.m_Body.clear();
    }
    report = m_FormatterOutput.str();
    m_FormatterOutput.str(string());
    if (m_RowFields.empty()) return;
    // The rows are made after the report, because AppendRows adds scores to the alignments.
    FrameWriter rows;
    for (uint32_t query = first; query < last; ++query) AppendRows(results[query], m_EarlierQueries + query, rows);
    m_Rows = rows.Take();
}

/// Appends the alignments of a query as rows, as CBlastFormat makes its tables, whatever the format of the report is.
void CEngine::AppendRows(const CSearchResults& results, uint32_t query, FrameWriter& to) {
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
        // The same values as in the table, which has the e-value of a set of alignments for each alignment of the set.
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
    string text = m_FormatterOutput.str();
    m_FormatterOutput.str(string());
    return text;
}

string CEngine::Epilog(uint32_t queries) {
    m_Formatter->m_QueriesFormatted = int(queries);
    m_Formatter->m_XMLFileCount = int(queries);
    m_Formatter->PrintEpilog(m_Options->GetOptions());
    string text = m_FormatterOutput.str();
    m_FormatterOutput.str(string());
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
    string text = m_FormatterOutput.str();
    m_FormatterOutput.str(string());
    return text;
}
