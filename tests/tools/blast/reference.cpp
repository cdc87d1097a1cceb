// The oracle of the search tests: one search program as NCBI's own applications run it, on the libraries that the worker
// links. One process, one pass over the whole database, CLocalBlast, CBlastFormat. It contains no code of godwit.
//
//     reference PROGRAM [the arguments of PROGRAM]
#include <ncbi_pch.hpp>

#include <corelib/ncbiapp.hpp>

#include <algo/blast/api/local_blast.hpp>
#include <algo/blast/api/objmgr_query_data.hpp>
#include <algo/blast/blastinput/blast_fasta_input.hpp>
#include <algo/blast/format/blast_format.hpp>

#include "app_util.hpp"

USING_NCBI_SCOPE;
USING_SCOPE(blast);
USING_SCOPE(objects);

class CReferenceApp : public CNcbiApplication {
public:
    explicit CReferenceApp(const string& program) : m_Program(program) {
        CRef<CVersion> version(new CVersion());
        version->SetVersionInfo(new CBlastVersion());
        SetFullVersion(version);
    }

private:
    void Init() override {
        m_Arguments = ProgramArguments(m_Program);
        HideStdArgs(fHideLogfile | fHideConffile | fHideFullVersion | fHideXmlHelp | fHideDryRun);
        SetupArgDescriptions(m_Arguments->SetCommandLine());
    }

    int Run() override {
        try {
            return Search();
        } catch (const CException& error) {
            NcbiCerr << error.what() << NcbiEndl;
            return 3;
        }
    }

    int Search() {
        SetDiagPostLevel(eDiag_Warning);
        const CArgs& args = GetArgs();
        CRef<CBlastOptionsHandle> options(&*m_Arguments->SetOptions(args));
        const CBlastOptions& opt = options->GetOptions();
        CRef<CLocalDbAdapter> database;
        CRef<CScope> scope;
        InitializeSubject(m_Arguments->GetBlastDatabaseArgs(), options, false, database, scope);

        CRef<CQueryOptionsArgs> query = m_Arguments->GetQueryOptionsArgs();
        SDataLoaderConfig loader = InitializeQueryDataLoaderConfiguration(query->QueryIsProtein(), database);
        CBlastInputSourceConfig source(loader, query->GetStrand(), query->UseLowercaseMasks(), query->GetParseDeflines(),
                                       query->GetRange());
        source.SetQueryLocalIdMode();
        if (IsIStreamEmpty(m_Arguments->GetInputStream())) {
            ERR_POST(Warning << "Query is Empty!");
            return 0;
        }
        CBlastFastaInputSource fasta(m_Arguments->GetInputStream(), source);
        CBlastInput input(&fasta);
        const int batch_size = m_Arguments->GetQueryBatchSize();

        CRef<CFormattingArgs> format = m_Arguments->GetFormattingArgs();
        CBlastFormat formatter(opt, *database, format->GetFormattedOutputChoice(), query->GetParseDeflines(),
                               m_Arguments->GetOutputStream(), format->GetNumDescriptions(), format->GetNumAlignments(),
                               *scope, opt.GetMatrixName(), format->ShowGis(), format->DisplayHtmlOutput(),
                               opt.GetQueryGeneticCode(), opt.GetDbGeneticCode(), opt.GetSumStatisticsMode(), false,
                               database->GetFilteringAlgorithm(), format->GetCustomOutputFormatSpec(),
                               m_Arguments->GetTask() == "megablast", opt.GetMBIndexLoaded(), NULL, NULL,
                               GetCmdlineArgs(GetArguments()), GetSubjectFile(args));
        formatter.SetQueryRange(query->GetRange());
        formatter.SetLineLength(format->GetLineLength());
        formatter.SetHitsSortOption(format->GetHitsSortOption());
        formatter.SetHspsSortOption(format->GetHspsSortOption());
        formatter.SetCustomDelimiter(format->GetCustomDelimiter());
        formatter.PrintProlog();

        CBatchSizeMixer mixer(Int4(SplitQuery_GetChunkSize(opt.GetProgram())) - 1000);
        const bool mixed = m_Program == "blastn" && batch_size == 0;
        if (mixed && formatter.GetDbTotalLength() > 0) mixer.SetTargetHits(Int4(formatter.GetDbTotalLength() / 3000));
        input.SetBatchSize(mixed ? mixer.GetBatchSize() : batch_size);

        for (; !input.End(); formatter.ResetScopeHistory(), QueryBatchCleanup()) {
            CRef<CBlastQueryVector> batch(input.GetNextSeqBatch(*scope));
            CRef<IQueryFactory> queries(new CObjMgr_QueryFactory(*batch));
            CLocalBlast search(queries, options, database);
            search.SetNumberOfThreads(m_Arguments->GetNumThreads());
            CRef<CSearchResultSet> results = search.Run();
            if (mixed) input.SetBatchSize(mixer.GetBatchSize(search.GetNumExtensions()));
            if (getenv("REFERENCE_TELLS_EXTENSIONS")) NcbiCerr << "extensions " << search.GetNumExtensions() << NcbiEndl;
            if (format->ArchiveFormatRequested(args)) {
                formatter.WriteArchive(*queries, *options, *results);
            } else {
                BlastFormatter_PreFetchSequenceData(*results, scope, format->GetFormattedOutputChoice());
                ITERATE(CSearchResultSet, result, *results) formatter.PrintOneResultSet(**result, batch);
            }
        }
        formatter.PrintEpilog(opt);
        return 0;
    }

    string m_Program;
    CRef<CBlastAppArgs> m_Arguments;
};

int main(int argc, const char* argv[]) {
    if (argc < 2 || ProgramArguments(argv[1]).Empty()) {
        NcbiCerr << "usage: reference blastp|blastn|blastx|tblastn|tblastx ARGUMENTS.." << NcbiEndl;
        return 2;
    }
    return CReferenceApp(argv[1]).AppMain(argc - 1, argv + 1, 0, eDS_Default, 0);
}
