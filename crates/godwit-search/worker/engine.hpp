// One BLAST+ program over parts of one database: the stages of CLocalBlast, taken apart where hits can be moved.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "app_util.hpp"

#include <algo/blast/api/local_blast.hpp>
#include <algo/blast/blastinput/blast_fasta_input.hpp>

#include "hits.hpp"

// The formatter counts the queries it has printed, in order to number and separate them. Ours prints any query at any time,
// so these counts are set before each; they are private members with no other door.
#define private public
#include <algo/blast/format/blast_format.hpp>
#undef private

/// A batch of queries, as the program itself cuts them.
struct BatchInfo {
    uint32_t queries;
    uint64_t residues;
    bool last;
    /// Hits of one query cannot be told from the others' before the traceback.
    bool whole;
    /// The engine refuses the queries; only CLocalBlast knows what it reports then.
    bool alone;
};

/// A part of the database to search.
struct Range {
    /// Ordinals [first, last).
    uint32_t first, last;
    /// By query of the batch: the e-value above which a subject cannot be kept, where others have filled the query's list.
    std::map<int32_t, double> worst;
};

/// What came of searching one range.
struct RangeHits {
    int64_t extensions = 0;
    /// Subjects that a query's list holds; 0 where lists are kept in another way, or there are none.
    uint32_t most = 0;
    /// Subjects that were worse than `worst`.
    uint64_t dropped = 0;
    /// Of each query, or one for all where the batch is whole.
    std::vector<std::string> hits;
};

/// CPU seconds of this process, by stage.
struct StageSeconds {
    double search = 0, traceback = 0, format = 0;
    /// From the end of one range to the first subject of the next, of so many ranges; a part of `search`.
    double range_starts = 0;
    uint64_t ranges_started = 0;
};

class CEngine {
public:
    /// Opens database and queries. Throws what the NCBI libraries throw.
    CEngine(const std::string& program, ncbi::CRef<ncbi::blast::CBlastAppArgs> arguments, const ncbi::CArgs& args,
            const std::string& command_line, const std::string& row_fields);

    uint32_t SequenceCount() const;
    /// Ranges of ordinals, of about equal numbers of letters: where each begins and its letters, and the end.
    std::vector<std::pair<uint32_t, uint64_t>> Cuts(uint32_t count) const;
    /// The volumes of the database, by paths without endings.
    std::vector<std::string> Volumes() const;
    bool QueriesAreEmpty() const { return m_QueriesAreEmpty; }

    /// Reads batches until the one of that number, counted from 0, each of its size; the last size is good for all further
    /// ones. A batch that is not there has no queries. Without `to_share` it is only good for ReportAlone.
    BatchInfo OpenBatch(uint32_t number, const std::vector<int32_t>& sizes, bool to_share);
    /// Letters in a batch, after batches with that many extensions each.
    int32_t BatchSize(const std::vector<int32_t>& extensions) const;
    /// Whether sizes depend on what was found.
    bool BatchSizesVary() const { return m_SizesVary; }

    /// Searches a range; `next` is called at its end with what was found and says whether it set another.
    void Search(Range range, const std::function<bool(RangeHits&&, Range&)>& next);

    /// The report on queries [first, last) of the batch, from hits of all ranges.
    void Report(uint32_t first, uint32_t last, const std::string& hits, std::string& report);
    /// The report on these queries, by one pass over the whole database.
    void ReportAlone(uint32_t first, uint32_t last, std::string& report);
    std::string Prolog();
    std::string Epilog(uint32_t queries);
    /// What SAM's header names of the last report, a line for each sequence with its name before it.
    std::string TakeHeaderLines();
    /// The alignments of the last report as rows (src/protocol.rs), where fields were asked for.
    std::string TakeRows();
    /// SAM's header with these lines.
    std::string Header(const std::string& lines);

    StageSeconds Seconds() const { return m_Seconds; }

private:
    void MakeFormatter(const ncbi::CArgs& args, const std::string& command_line);
    void Prepare();
    void Iterate();
    void TakeStream(BlastHSPStream* stream, uint32_t chunk, const Range& range, RangeHits& into);
    void FreshStream();
    void Give(std::vector<HitList>& hits);
    void Print(const ncbi::blast::CSearchResultSet& results, uint32_t first, uint32_t last, std::string& report);
    void PutRows(const ncbi::blast::CSearchResults& results, uint32_t query, FrameWriter& to);

    std::string m_Program;
    ncbi::CRef<ncbi::blast::CBlastAppArgs> m_Arguments;
    ncbi::CRef<ncbi::blast::CBlastOptionsHandle> m_Options;
    ncbi::CRef<ncbi::blast::CLocalDbAdapter> m_Database;
    ncbi::CRef<ncbi::objects::CScope> m_Scope;
    ncbi::CRef<ncbi::CSeqDB> m_SeqDb;
    /// Owned by m_Input too.
    ncbi::CRef<ncbi::blast::CBlastFastaInputSource> m_Fasta;
    std::unique_ptr<ncbi::blast::CBlastInput> m_Input;
    bool m_SizesVary = false;
    int32_t m_OwnBatchSize = 0;
    std::ostringstream m_Printed;
    std::unique_ptr<ncbi::CBlastFormat> m_Formatter;
    bool m_IsArchive = false;
    bool m_IsSam = false;
    std::string m_HeaderLines;
    /// Fields of rows, as -outfmt has them; empty where none are asked for.
    std::string m_RowFields;
    std::string m_Rows;
    /// Hits are moved as the engine writes them, for its writer keeps them in a way of its own (culling, best hits).
    bool m_Raw = false;
    bool m_QueriesAreEmpty = false;

    uint32_t m_NextBatch = 0;
    /// Queries before this batch.
    uint32_t m_Before = 0;
    ncbi::CRef<ncbi::blast::CBlastQueryVector> m_Queries;
    ncbi::CRef<ncbi::blast::IQueryFactory> m_Factory;
    BatchInfo m_Info = {};
    bool m_Split = false;
    ncbi::CRef<ncbi::blast::CBlastPrelimSearch> m_Prelim;
    ncbi::CRef<ncbi::blast::SInternalData> m_Data;
    StageSeconds m_Seconds;
};
