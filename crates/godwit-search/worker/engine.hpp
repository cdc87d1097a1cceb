// A BLAST+ program that searches ranges of one database. It runs the stages of CLocalBlast separately, so that hits can move
// between processes after the preliminary search.
#pragma once

#include <fstream>
#include <map>
#include <memory>
#include <vector>

#include "app_util.hpp"

#include <algo/blast/api/local_blast.hpp>
#include <algo/blast/blastinput/blast_fasta_input.hpp>

#include "hits.hpp"

// The formatter counts the queries that it has printed, to number and separate them. This worker prints queries in any order
// and therefore sets the counts before each query. The counts are private members without a public setter.
#define private public
#include <algo/blast/format/blast_format.hpp>
#undef private

/// A batch of queries, with the boundaries that the BLAST+ program itself chooses.
struct BatchInfo {
    uint32_t queries;
    uint64_t residues;
    bool is_last;
    /// Before the traceback, the hits cannot be separated by query.
    bool has_joint_hits;
    /// The engine rejects the queries, so the batch cannot be searched by ranges. CLocalBlast produces the report then.
    bool is_unsplittable;
};

/// A range of the database to search.
struct Range {
    /// Ordinals [first, last), 0-based.
    uint32_t first, last;
    /// By query of the batch: the e-value above which a subject is dropped. Only queries whose list is already full have an
    /// entry.
    std::map<int32_t, double> evalue_thresholds;
};

/// The result of searching one range.
struct RangeHits {
    int64_t extensions = 0;
    /// Maximum number of subjects in the list of a query; 0 if it is not known (unfiltered hits, split queries) or if no
    /// query has a list.
    uint32_t list_capacity = 0;
    /// Number of subjects that were dropped because of `evalue_thresholds`.
    uint64_t dropped_subjects = 0;
    /// Hits as bytes (hits.hpp): one element for each query, or a single element if the batch has joint hits.
    std::vector<std::string> hits;
};

/// CPU seconds of this process, by stage.
struct StageSeconds {
    double search = 0, traceback = 0, format = 0;
    /// From the end of a range to the first subject of the next, summed over `ranges_started` ranges; included in `search`.
    double range_starts = 0;
    uint64_t ranges_started = 0;
};

class CEngine {
public:
    /// Opens the database and the queries. Throws the exceptions of the NCBI libraries, and std::logic_error if the options
    /// make hits depend on those of earlier subjects.
    CEngine(const std::string& program, ncbi::CRef<ncbi::blast::CBlastAppArgs> arguments, const ncbi::CArgs& args,
            const std::string& command_line, const std::string& row_fields);

    uint32_t SequenceCount() const;
    /// Returns the number of ranges into which the database is cut: `count`, or more if a range would have more than
    /// `max_bytes` bytes of letters on disk. 0 for `max_bytes` means no limit.
    uint32_t RangeCount(uint32_t count, uint64_t max_bytes) const;
    /// Splits the database into at most `count` ranges of ordinals with about equal numbers of letters. Returns the first
    /// ordinal and the letters of each range, then the end with 0 letters.
    std::vector<std::pair<uint32_t, uint64_t>> RangeStarts(uint32_t count) const;
    /// Returns the paths of the database volumes, without file extensions; none if the subjects are those of a FASTA file.
    std::vector<std::string> Volumes() const;
    bool QueriesAreEmpty() const { return m_QueriesAreEmpty; }

    /// Reads batches up to the batch `number` (0-based). `sizes` has the size of each batch; the last size applies to all
    /// later batches. If it is empty, the sizes depend on the results of earlier batches, and batches that are not reported
    /// are searched here. Returns a batch without queries if the input has fewer batches. If `to_share` is false, the batch
    /// is only valid for ReportAlone.
    BatchInfo OpenBatch(uint32_t number, const std::vector<int32_t>& sizes, bool to_share);
    /// Opens batches from `first` (0-based) on and keeps them open together, for SelectBatch. Ends with the last batch, with
    /// the batch that brings the number of queries to `max_queries`, or after `max_batches` batches. `sizes` is as in
    /// OpenBatch.
    std::vector<BatchInfo> OpenGroup(uint32_t first, uint32_t max_queries, uint32_t max_batches,
                                     const std::vector<int32_t>& sizes);
    /// Makes batch `number` of the open group the batch that Search searches. Closes the batches before `first`. A worker
    /// that has not opened the group yet, or has opened it with other sizes, reads its batches here.
    void SelectBatch(uint32_t number, uint32_t first, const std::vector<int32_t>& sizes);
    /// Returns the size of the next batch in letters, given the number of extensions of each earlier batch.
    int32_t BatchSize(const std::vector<int32_t>& extensions) const;
    /// Returns true if the size of a batch depends on the extensions of earlier batches.
    bool BatchSizesVary() const { return m_SizesVary; }

    /// Searches a range. At its end, calls `next` with the result; `next` returns true if it has set a further range.
    void Search(Range range, const std::function<bool(RangeHits&&, Range&)>& next);

    /// Writes the report on queries [first, last) of the batch into `report`, from the hits of all ranges. If
    /// `reads_randomly` is true, advises the kernel not to read pages of the database around those that are used.
    void Report(uint32_t first, uint32_t last, const std::string& hits, bool reads_randomly, std::string& report);
    /// Writes the report on these queries into `report`, by one pass over the whole database.
    void ReportAlone(uint32_t first, uint32_t last, std::string& report);
    std::string Prolog();
    std::string Epilog(uint32_t queries);
    /// Moves out the SAM header lines of the last report: for each sequence, its name and its line.
    std::string TakeHeaderLines();
    /// Moves out the alignments of the last report as rows (src/worker_protocol.rs); empty if no row fields were requested.
    std::string TakeRows();
    /// Returns the SAM header with these lines.
    std::string Header(const std::string& lines);

    StageSeconds Seconds() const { return m_Seconds; }

private:
    /// Reads the queries of the input in batches.
    struct QueryReader {
        /// The stream of `fasta`; empty for the stream that m_Arguments owns.
        std::unique_ptr<std::ifstream> file;
        ncbi::CRef<ncbi::objects::CScope> scope;
        /// Also owned by `input`.
        ncbi::CRef<ncbi::blast::CBlastFastaInputSource> fasta;
        std::unique_ptr<ncbi::blast::CBlastInput> input;
        /// Number of the batch that is read next.
        uint32_t next_batch = 0;
        /// Number of queries in the batches that were read.
        uint32_t queries = 0;
        /// Sizes of the batches that were read, letters.
        std::vector<int32_t> sizes;

        QueryReader(ncbi::CNcbiIstream& from, const ncbi::blast::CBlastInputSourceConfig& source,
                    ncbi::CRef<ncbi::objects::CScope> in_scope);
        /// Reads the next batch of about `letters` letters.
        ncbi::CRef<ncbi::blast::CBlastQueryVector> Next(int32_t letters);
        bool AtEnd() { return input->End(); }
    };
    /// A batch of an open group.
    struct GroupBatch {
        ncbi::CRef<ncbi::blast::CBlastQueryVector> queries;
        bool is_last;
    };

    void MakeFormatter(const ncbi::CArgs& args, const std::string& command_line);
    void CloseBatch();
    void Describe();
    void ReadGroupBatch(const std::vector<int32_t>& sizes);
    void Prepare();
    void RunPreliminarySearch();
    void CollectHits(BlastHSPStream* stream, uint32_t chunk, const Range& range, RangeHits& into);
    void ResetHspStream();
    void SubmitHits(std::vector<HitList>& hits);
    void OpenDatabaseFiles();
    void SetReadsRandomly(bool reads_randomly);
    /// Searches the batch in one pass over the whole database or all subjects.
    ncbi::CRef<ncbi::blast::CSearchResultSet> SearchAlone();
    void FormatReport(const ncbi::blast::CSearchResultSet& results, uint32_t first, uint32_t last, std::string& report);
    void AppendRows(const ncbi::blast::CSearchResults& results, uint32_t query, FrameWriter& to);

    std::string m_Program;
    ncbi::CRef<ncbi::blast::CBlastAppArgs> m_Arguments;
    ncbi::CRef<ncbi::blast::CBlastOptionsHandle> m_Options;
    ncbi::CRef<ncbi::blast::CLocalDbAdapter> m_Database;
    ncbi::CRef<ncbi::objects::CScope> m_Scope;
    /// Empty if the subjects are those of a FASTA file (-subject).
    ncbi::CRef<ncbi::CSeqDB> m_SeqDb;
    std::string m_QueryPath;
    std::unique_ptr<ncbi::blast::CBlastInputSourceConfig> m_Source;
    /// Reads the batches that are opened one after another.
    std::unique_ptr<QueryReader> m_Reader;
    /// Reads the batches of groups. It has a scope of its own, because the scope of m_Reader forgets the queries of earlier
    /// batches.
    std::unique_ptr<QueryReader> m_GroupReader;
    /// Open batches of the group, by number.
    std::map<uint32_t, GroupBatch> m_Group;
    /// Number of the selected batch of the group; -1 if the batch of m_Reader is the current one.
    int64_t m_Selected = -1;
    bool m_SizesVary = false;
    int32_t m_OwnBatchSize = 0;
    /// Number of extensions of each batch so far, if the sizes of batches vary and this worker searches all of them.
    std::vector<int32_t> m_Extensions;
    std::ostringstream m_FormatterOutput;
    std::unique_ptr<ncbi::CBlastFormat> m_Formatter;
    bool m_IsArchive = false;
    bool m_IsSam = false;
    std::string m_HeaderLines;
    /// Fields of the rows, in the syntax of -outfmt; empty if no rows are requested.
    std::string m_RowFields;
    std::string m_Rows;
    /// Hits are collected before the engine's HSP writer receives them, because options of culling or best hits make this
    /// writer filter them.
    bool m_KeepsUnfilteredHits = false;
    bool m_QueriesAreEmpty = false;
    /// The kernel was advised that this process reads the database in random order.
    bool m_ReadsRandomly = false;
    /// OpenDatabaseFiles was called.
    bool m_FilesAreOpen = false;

    /// Number of queries in the batches before the current one of m_Reader.
    uint32_t m_EarlierQueries = 0;
    ncbi::CRef<ncbi::blast::CBlastQueryVector> m_Queries;
    ncbi::CRef<ncbi::blast::IQueryFactory> m_Factory;
    BatchInfo m_Info = {};
    bool m_Split = false;
    ncbi::CRef<ncbi::blast::CBlastPrelimSearch> m_Prelim;
    ncbi::CRef<ncbi::blast::SInternalData> m_Data;
    StageSeconds m_Seconds;
};
