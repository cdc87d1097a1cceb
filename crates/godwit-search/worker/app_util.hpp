// Functions of the NCBI applications without a public header. The library libblast_app_util exports them, but its header is
// not installed. The signatures are those of the toolkit's src/app/blast/blast_app_util.hpp, version 30.
#pragma once

#include <algo/blast/api/local_db_adapter.hpp>
#include <algo/blast/api/uniform_search.hpp>
#include <algo/blast/blastinput/blast_args.hpp>
#include <algo/blast/blastinput/blast_scope_src.hpp>
#include <algo/blast/blastinput/blastn_args.hpp>
#include <algo/blast/blastinput/blastp_args.hpp>
#include <algo/blast/blastinput/blastx_args.hpp>
#include <algo/blast/blastinput/tblastn_args.hpp>
#include <algo/blast/blastinput/tblastx_args.hpp>

BEGIN_NCBI_SCOPE

/// The control of blastn's batch size. It computes the next size from the number of extensions in the previous batch.
class CBatchSizeMixer {
    // The layout must equal that of the library, which implements `GetBatchSize`.
    const double k_MixIn = 0.3;
    Int4 m_TargetHits = 1000000;
    double m_Ratio = -1.0;
    Int4 m_BatchSize = 5000;
    const Int4 k_MinBatchSize = 100;
    const Int4 k_MaxBatchSize;
    const Int4 k_MinTargetHits = 1000000;

public:
    explicit CBatchSizeMixer(Int4 max_batch_size) : k_MaxBatchSize(max_batch_size) {}
    void SetTargetHits(Int4 target) {
        m_TargetHits = target < k_MinTargetHits ? k_MinTargetHits : target;
        m_BatchSize = m_TargetHits / 200;
    }
    Int4 GetBatchSize(Int4 hits = -1);
};

blast::SDataLoaderConfig InitializeQueryDataLoaderConfiguration(bool query_is_protein,
                                                               CRef<blast::CLocalDbAdapter> db_adapter);
void InitializeSubject(CRef<blast::CBlastDatabaseArgs> db_args, CRef<blast::CBlastOptionsHandle> opts_hndl,
                       bool is_remote_search, CRef<blast::CLocalDbAdapter>& db_adapter, CRef<objects::CScope>& scope);
void BlastFormatter_PreFetchSequenceData(const blast::CSearchResultSet& results, CRef<objects::CScope> scope,
                                         blast::CFormattingArgs::EOutputFormat format_type);
bool IsIStreamEmpty(CNcbiIstream& in);
void QueryBatchCleanup();
string GetCmdlineArgs(const CNcbiArguments& arguments);
string GetSubjectFile(const CArgs& args);

BEGIN_SCOPE(blast)
/// Returns the number of parts into which the preliminary search splits the queries of a batch. The toolkit declares it in
/// src/algo/blast/api/split_query_aux_priv.hpp.
Uint4 SplitQuery_CalculateNumChunks(EBlastProgramType program, size_t* chunk_size, size_t concatenated_query_length,
                                    size_t num_queries);
END_SCOPE(blast)

END_NCBI_SCOPE

/// Returns the command-line arguments that a BLAST+ program accepts, or NULL for any other name.
inline ncbi::CRef<ncbi::blast::CBlastAppArgs> ProgramArguments(const std::string& program) {
    using namespace ncbi::blast;
    ncbi::CRef<CBlastAppArgs> arguments;
    if (program == "blastp") arguments.Reset(new CBlastpAppArgs());
    if (program == "blastn") arguments.Reset(new CBlastnAppArgs());
    if (program == "blastx") arguments.Reset(new CBlastxAppArgs());
    if (program == "tblastn") arguments.Reset(new CTblastnAppArgs());
    if (program == "tblastx") arguments.Reset(new CTblastxAppArgs());
    return arguments;
}
