#include <ncbi_pch.hpp>

#include "engine.hpp"

#include <algo/blast/api/objmgr_query_data.hpp>

#include "hooks.hpp"
#include "stage_clock.hpp"

USING_NCBI_SCOPE;
USING_SCOPE(blast);
USING_SCOPE(objects);

CEngine::CEngine(const string& program, CRef<CBlastAppArgs> arguments, const CArgs& args, const string& command_line,
                 const string& row_fields)
    : m_Program(program), m_Arguments(arguments), m_RowFields(row_fields) {
    m_Options.Reset(&*m_Arguments->SetOptions(args));
    const CBlastOptions& options = m_Options->GetOptions();
    // This option makes the hits of a subject depend on earlier subjects, which another worker may search. No program of this
    // version of the libraries sets it.
    if (options.GetLowScorePerc() > 0) throw std::logic_error("the NCBI libraries keep hits by those of earlier subjects");
    m_KeepsUnfilteredHits =
        options.GetCullingLimit() > 0 || options.GetBestHitOverhang() > 0 || options.GetSubjectBestHit();

    InitializeSubject(m_Arguments->GetBlastDatabaseArgs(), m_Options, false, m_Database, m_Scope);
    if (m_Database->IsBlastDb()) {
        m_SeqDb = m_Arguments->GetBlastDatabaseArgs()->GetSearchDatabase()->GetSeqDb();
        g_Hooks.database = &*m_SeqDb;
        InstallRangeIterator(m_Database->MakeSeqSrc());
    }

    CRef<CQueryOptionsArgs> query = m_Arguments->GetQueryOptionsArgs();
    SDataLoaderConfig loader = InitializeQueryDataLoaderConfiguration(query->QueryIsProtein(), m_Database);
    m_Source.reset(new CBlastInputSourceConfig(loader, query->GetStrand(), query->UseLowercaseMasks(),
                                               query->GetParseDeflines(), query->GetRange()));
    m_Source->SetQueryLocalIdMode();
    m_QueriesAreEmpty = IsIStreamEmpty(m_Arguments->GetInputStream());
    if (m_QueriesAreEmpty) return;
    m_QueryPath = args[kArgQuery].AsString();
    m_Reader.reset(new QueryReader(m_Arguments->GetInputStream(), *m_Source, m_Scope));

    MakeFormatter(args, command_line);
    m_OwnBatchSize = m_Arguments->GetQueryBatchSize();
    m_SizesVary = m_Program == "blastn" && m_OwnBatchSize == 0;
}

CEngine::QueryReader::QueryReader(CNcbiIstream& from, const CBlastInputSourceConfig& source, CRef<CScope> in_scope)
    : scope(in_scope), fasta(new CBlastFastaInputSource(from, source)), input(new CBlastInput(&*fasta)) {}

CRef<CBlastQueryVector> CEngine::QueryReader::Next(int32_t letters) {
    input->SetBatchSize(letters);
    CRef<CBlastQueryVector> read = input->GetNextSeqBatch(*scope);
    sizes.push_back(letters);
    ++next_batch;
    queries += uint32_t(read->Size());
    return read;
}

void CEngine::MakeFormatter(const CArgs& args, const string& command_line) {
    const CBlastOptions& options = m_Options->GetOptions();
    CRef<CFormattingArgs> format = m_Arguments->GetFormattingArgs();
    CRef<CQueryOptionsArgs> query = m_Arguments->GetQueryOptionsArgs();
    m_IsArchive = format->ArchiveFormatRequested(args);
    m_IsSam = format->GetFormattedOutputChoice() == CFormattingArgs::eSAM;
    m_Formatter.reset(new CBlastFormat(
        options, *m_Database, format->GetFormattedOutputChoice(), query->GetParseDeflines(), m_FormatterOutput,
        format->GetNumDescriptions(), format->GetNumAlignments(), *m_Scope, options.GetMatrixName(), format->ShowGis(),
        format->DisplayHtmlOutput(), options.GetQueryGeneticCode(), options.GetDbGeneticCode(),
        options.GetSumStatisticsMode(), false, m_Database->GetFilteringAlgorithm(), format->GetCustomOutputFormatSpec(),
        m_Arguments->GetTask() == "megablast", options.GetMBIndexLoaded(), NULL, NULL, command_line, GetSubjectFile(args)));
    m_Formatter->SetQueryRange(query->GetRange());
    m_Formatter->SetLineLength(format->GetLineLength());
    m_Formatter->SetHitsSortOption(format->GetHitsSortOption());
    m_Formatter->SetHspsSortOption(format->GetHspsSortOption());
    m_Formatter->SetCustomDelimiter(format->GetCustomDelimiter());
}

uint32_t CEngine::SequenceCount() const { return m_SeqDb.Empty() ? 1 : uint32_t(m_SeqDb->GetNumOIDs()); }

uint32_t CEngine::RangeCount(uint32_t count, uint64_t max_bytes) const {
    if (max_bytes == 0 || m_SeqDb.Empty()) return count;
    // A nucleotide takes two bits.
    const uint64_t letters_per_byte = m_SeqDb->GetSequenceType() == CSeqDB::eProtein ? 1 : 4;
    const uint64_t bytes = m_SeqDb->GetVolumeLength() / letters_per_byte;
    return uint32_t(max<uint64_t>(count, bytes / max_bytes + 1));
}

vector<pair<uint32_t, uint64_t>> CEngine::RangeStarts(uint32_t count) const {
    const uint32_t sequences = SequenceCount();
    // Each worker searches all subjects.
    if (m_SeqDb.Empty()) return {{0, 0}, {sequences, 0}};
    const double share = double(m_SeqDb->GetVolumeLength()) / count;
    vector<pair<uint32_t, uint64_t>> cuts = {{0, 0}};
    Uint8 passed = 0;
    for (uint32_t oid = 0; oid < sequences; ++oid) {
        // A sequence longer than a share results in fewer ranges, not in empty ranges.
        if (double(passed) >= share * double(cuts.size()) && cuts.size() < count && oid > cuts.back().first) {
            cuts.push_back({oid, 0});
        }
        const uint64_t letters = uint64_t(m_SeqDb->GetSeqLengthApprox(int(oid)));
        passed += letters;
        cuts.back().second += letters;
    }
    cuts.push_back({sequences, 0});
    return cuts;
}

vector<string> CEngine::Volumes() const {
    vector<string> paths;
    if (m_SeqDb.NotEmpty()) m_SeqDb->FindVolumePaths(paths);
    return paths;
}

int32_t CEngine::BatchSize(const vector<int32_t>& extensions) const {
    if (!m_SizesVary) return m_OwnBatchSize;
    CBatchSizeMixer mixer(Int4(SplitQuery_GetChunkSize(m_Options->GetOptions().GetProgram())) - 1000);
    const Int8 letters = m_Formatter->GetDbTotalLength();
    if (letters > 0) mixer.SetTargetHits(Int4(letters / 3000));
    int32_t size = mixer.GetBatchSize();
    for (int32_t count : extensions) size = mixer.GetBatchSize(count);
    return size;
}

void CEngine::CloseBatch() {
    m_Prelim.Reset();
    m_Data.Reset();
    m_Factory.Reset();
    m_Queries.Reset();
}

/// Returns the size of a batch, letters. The last size applies to all later batches.
static int32_t SizeOf(const vector<int32_t>& sizes, size_t batch) {
    return batch < sizes.size() ? sizes[batch] : sizes.back();
}

BatchInfo CEngine::OpenBatch(uint32_t number, const vector<int32_t>& sizes, bool to_share) {
    m_Group.clear();
    m_Selected = -1;
    m_Info = BatchInfo();
    do {
        const bool reads_first = m_Reader->next_batch == 0;
        CloseBatch();
        if (!reads_first) {
            m_Formatter->ResetScopeHistory();
            QueryBatchCleanup();
        }
        m_EarlierQueries = m_Reader->queries;
        m_Info.is_last = m_Reader->AtEnd();
        if (m_Info.is_last) return m_Info;
        const uint32_t next = m_Reader->next_batch;
        m_Queries = m_Reader->Next(sizes.empty() ? BatchSize(m_Extensions) : SizeOf(sizes, next));
        if (sizes.empty() && next < number) SearchAlone();
    } while (m_Reader->next_batch <= number);
    m_Info.queries = uint32_t(m_Queries->Size());
    m_Info.is_last = m_Reader->AtEnd();
    if (to_share) Describe();
    return m_Info;
}

/// Sets those members of m_Info that depend on the options of the search.
void CEngine::Describe() {
    // Masking the queries counts as search time, as in Search and ReportAlone.
    StageClock clock(m_Seconds.search);
    Prepare();
    CBlastOptions& options = m_Options->SetOptions();
    CRef<ILocalQueryData> data = m_Factory->MakeLocalQueryData(&options);
    m_Info.residues = data->GetSumOfSequenceLengths();
    size_t chunk = SplitQuery_GetChunkSize(options.GetProgram());
    m_Split = options.GetGappedMode() && SplitQuery_CalculateNumChunks(options.GetProgramType(), &chunk, m_Info.residues,
                                                                       data->GetNumQueries()) > 1;
    m_Info.has_joint_hits = m_Split || m_KeepsUnfilteredHits || m_IsArchive;
    m_Info.is_unsplittable = m_Prelim->CheckInternalData() != 0;
}

/// Reads the next batch of m_GroupReader into m_Group.
void CEngine::ReadGroupBatch(const vector<int32_t>& sizes) {
    if (!m_GroupReader) {
        unique_ptr<ifstream> file(new ifstream(m_QueryPath));
        CRef<CScope> scope(new CScope(*CObjectManager::GetInstance()));
        m_GroupReader.reset(new QueryReader(*file, *m_Source, scope));
        m_GroupReader->file = std::move(file);
    }
    const uint32_t number = m_GroupReader->next_batch;
    GroupBatch& batch = m_Group[number];
    batch.queries = m_GroupReader->Next(SizeOf(sizes, number));
    batch.is_last = m_GroupReader->AtEnd();
}

void CEngine::SelectBatch(uint32_t number, uint32_t first, const vector<int32_t>& sizes) {
    if (m_GroupReader) {
        // If a size was predicted wrongly, the batches that were read have other queries.
        const vector<int32_t>& read = m_GroupReader->sizes;
        for (size_t batch = 0; batch < read.size(); ++batch) {
            if (read[batch] == SizeOf(sizes, batch)) continue;
            m_GroupReader.reset();
            m_Group.clear();
            m_Selected = -1;
            break;
        }
    }
    m_Group.erase(m_Group.begin(), m_Group.lower_bound(first));
    if (m_Selected == int64_t(number)) return;
    if (m_GroupReader && m_GroupReader->next_batch > number && m_Group.count(number) == 0) m_GroupReader.reset();
    while (m_Group.count(number) == 0) {
        if (m_GroupReader && m_GroupReader->AtEnd()) throw std::logic_error("the queries have no batch of this number");
        ReadGroupBatch(sizes);
        m_Group.erase(m_Group.begin(), m_Group.lower_bound(first));
    }
    CloseBatch();
    m_Selected = int64_t(number);
    m_Queries = m_Group[number].queries;
    m_Info = BatchInfo();
    m_Info.queries = uint32_t(m_Queries->Size());
    m_Info.is_last = m_Group[number].is_last;
    Describe();
}

vector<BatchInfo> CEngine::OpenGroup(uint32_t first, uint32_t max_queries, uint32_t max_batches,
                                     const vector<int32_t>& sizes) {
    vector<BatchInfo> group;
    uint32_t queries = 0;
    do {
        SelectBatch(first + uint32_t(group.size()), first, sizes);
        group.push_back(m_Info);
        queries += m_Info.queries;
    } while (!m_Info.is_last && queries < max_queries && group.size() < max_batches);
    return group;
}
