// godwit-blast: a worker that runs the NCBI engine. The head requests searches and reports from it.
//
//     godwit-blast PROGRAM [arguments of PROGRAM, without -out]
//
// The worker exchanges frames over standard input and output (frames.hpp; src/worker_protocol.rs documents each frame). Only godwit
// starts it. `godwit-blast --version` prints the version of the BLAST+ engine that it links.
#include <ncbi_pch.hpp>

#include <map>

#include <fcntl.h>
#include <sys/resource.h>

#include <corelib/ncbiapp.hpp>

#include <algo/blast/blastinput/blast_input_aux.hpp>
#include <objtools/blast/blastdb_format/invalid_data_exception.hpp>
#include <objtools/readers/reader_exception.hpp>
#include <util/checksum.hpp>

#include "engine.hpp"

USING_NCBI_SCOPE;
USING_SCOPE(blast);

namespace {

/// Reports that are not written yet: in memory up to a limit in bytes, and above it in an unnamed scratch file.
class ReportStore {
    struct StoredReport {
        string memory;
        off_t start = -1;
        uint64_t bytes = 0;
    };
    map<uint64_t, StoredReport> m_Reports;
    uint64_t m_InMemory = 0;
    uint64_t m_Limit;
    string m_Directory;
    int m_Spill = -1;
    off_t m_Spilled = 0;

public:
    ReportStore(uint64_t limit, const string& directory) : m_Limit(limit), m_Directory(directory) {}

    void Add(uint64_t key, string&& report) {
        StoredReport place;
        place.bytes = report.size();
        if (m_InMemory + report.size() > m_Limit) {
            if (m_Spill < 0) m_Spill = open(m_Directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
            if (m_Spill < 0) throw runtime_error("cannot make a scratch file in " + m_Directory);
            WriteAt(m_Spill, report.data(), report.size(), m_Spilled);
            place.start = m_Spilled;
            m_Spilled += off_t(report.size());
        } else {
            m_InMemory += report.size();
            place.memory = std::move(report);
        }
        m_Reports[key] = std::move(place);
    }

    /// Writes a report to `file` and removes it from the store. Writes only pages that the report fills completely: on
    /// network file systems, two hosts that write to one page overwrite each other's bytes. Appends the remaining bytes to
    /// `edges`.
    void Write(uint64_t key, int file, uint64_t offset, uint64_t page, vector<pair<uint64_t, string>>& edges) {
        const auto found = m_Reports.find(key);
        if (found == m_Reports.end()) throw logic_error("a report was asked for that was never made");
        StoredReport& place = found->second;
        string report = std::move(place.memory);
        if (place.start >= 0) {
            report.resize(place.bytes);
            ReadAt(m_Spill, &report[0], report.size(), place.start);
        } else {
            m_InMemory -= report.size();
        }
        m_Reports.erase(found);
        const uint64_t end = offset + report.size();
        const uint64_t from = min((offset + page - 1) / page * page, end);
        const uint64_t to = max(end / page * page, from);
        WriteAt(file, report.data() + (from - offset), to - from, off_t(from));
        if (from > offset) edges.push_back({offset, report.substr(0, from - offset)});
        if (end > to) edges.push_back({to, report.substr(to - offset)});
        // When the store is empty, all reports of the scratch file are written and its space can be reused.
        if (m_Reports.empty()) m_Spilled = 0;
    }

    static void ReadAt(int file, char* bytes, size_t length, off_t offset) {
        size_t done = 0;
        while (done < length) {
            const ssize_t got = pread(file, bytes + done, length - done, offset + off_t(done));
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) throw runtime_error("cannot read back a scratch file");
            done += size_t(got);
        }
    }

    static void WriteAt(int file, const char* bytes, size_t length, off_t offset) {
        size_t done = 0;
        while (done < length) {
            const ssize_t put = pwrite(file, bytes + done, length - done, offset + off_t(done));
            if (put < 0 && errno == EINTR) continue;
            if (put < 0) throw runtime_error(string("cannot write: ") + strerror(errno));
            done += size_t(put);
        }
    }
};

class CWorkerApp : public CNcbiApplication {
public:
    CWorkerApp(const string& program, Channel& channel) : m_Program(program), m_Channel(channel) {
        CRef<CVersion> version(new CVersion());
        version->SetVersionInfo(new CBlastVersion());
        SetFullVersion(version);
    }

    /// Sends the frame X: the worker stops because of a failure of this kind.
    void SendFailure(char kind, const string& message) {
        FrameWriter to;
        to.Put<char>(kind);
        to.PutText(message);
        m_Channel.Send('X', to.Bytes());
    }

private:
    void Init() override {
        m_Arguments = ProgramArguments(m_Program);
        HideStdArgs(fHideLogfile | fHideConffile | fHideFullVersion | fHideXmlHelp | fHideDryRun);
        CArgDescriptions* options = m_Arguments->SetCommandLine();
        try {
            // For the same error, CNcbiApplication would print its usage and exit.
            unique_ptr<CArgs> accepted(options->CreateArgs(GetArguments()));
        } catch (const CArgException& error) {
            SendFailure('u', error.GetMsg());
            throw;
        }
        SetupArgDescriptions(options);
    }

    // Each kind of failure has a letter, as in src/worker_protocol.rs: u usage, i input, d database, e engine.
    int Run() override {
        try {
            Serve();
            return 0;
        } catch (const DisconnectedError&) {
            return 1;
        } catch (const CInputException& error) {
            SendFailure('i', error.GetMsg());
        } catch (const CObjReaderException& error) {
            SendFailure('i', error.GetMsg());
        } catch (const CArgException& error) {
            SendFailure('u', error.GetMsg());
        } catch (const CInvalidDataException& error) {
            SendFailure('u', error.GetMsg());
        } catch (const CSeqDBException& error) {
            SendFailure('d', error.GetMsg());
        } catch (const CBlastException& error) {
            SendFailure(error.GetErrCode() == CBlastException::eInvalidOptions ? 'u' : 'e', error.GetMsg());
        } catch (const CException& error) {
            SendFailure('e', error.GetMsg());
        } catch (const std::bad_alloc&) {
            SendFailure('e', "out of memory");
        } catch (const std::invalid_argument& error) {
            SendFailure('u', error.what());
        } catch (const std::exception& error) {
            SendFailure('e', error.what());
        }
        return 1;
    }

    void Serve() {
        SetDiagPostLevel(eDiag_Warning);
        string body;
        if (m_Channel.Receive(body) != 'I') throw DisconnectedError("no greeting");
        FrameReader greeting(body);
        const uint32_t ranges = greeting.Get<uint32_t>();
        const uint64_t range_bytes = greeting.Get<uint64_t>();
        const uint64_t limit = greeting.Get<uint64_t>();
        const string scratch = greeting.GetText();
        const string command_line = greeting.GetText();
        const string row_fields = greeting.GetText();
        m_ReportStore.reset(new ReportStore(limit, scratch));
        m_Engine.reset(new CEngine(m_Program, m_Arguments, GetArgs(), command_line, row_fields));
        FrameWriter to;
        const vector<string> volumes = m_Engine->Volumes();
        to.Put<uint32_t>(uint32_t(volumes.size()));
        for (const string& volume : volumes) to.PutText(volume);
        to.Put<uint8_t>(m_Engine->QueriesAreEmpty());
        to.Put<uint8_t>(m_Engine->BatchSizesVary());
        to.Put<int32_t>(m_Engine->QueriesAreEmpty() ? 0 : m_Engine->BatchSize({}));
        const uint32_t count = m_Engine->RangeCount(ranges, range_bytes);
        to.Put<uint32_t>(count);
        const auto cuts = m_Engine->RangeStarts(count);
        to.Put<uint32_t>(uint32_t(cuts.size()));
        for (const auto& [first, letters] : cuts) {
            to.Put<uint32_t>(first);
            to.Put<uint64_t>(letters);
        }
        m_Channel.Send('I', to.Bytes());
        for (;;) {
            const char kind = m_Channel.Receive(body);
            if (kind == 'Q') return;
            HandleRequest(kind, body);
        }
    }

    void HandleRequest(char kind, const string& body) {
        FrameReader from(body);
        switch (kind) {
            case 'B': return OpenBatch(from);
            case 'G': return OpenGroup(from);
            case 'R': return Search(from);
            case 'E': return;
            case 'O': return Report(from);
            case 'A': return ReportWholeBatch(from);
            case 'M': return SendNextBatchSize(from);
            case 'P': return m_Channel.Send('P', m_Engine->Prolog());
            case 'Z': return m_Channel.Send('Z', m_Engine->Epilog(from.Get<uint32_t>()));
            case 'F': return m_Channel.Send('F', m_Engine->Header(body));
            case 'W': return WriteReports(from);
            case 'S': return SendStageSeconds();
            default: throw DisconnectedError("an unknown frame");
        }
    }

    void OpenBatch(FrameReader& from) {
        const uint32_t number = from.Get<uint32_t>();
        const BatchInfo info = m_Engine->OpenBatch(number, Numbers(from), true);
        FrameWriter to;
        PutBatch(info, to);
        m_Channel.Send('B', to.Bytes());
    }

    static void PutBatch(const BatchInfo& info, FrameWriter& to) {
        to.Put<uint32_t>(info.queries);
        to.Put<uint64_t>(info.residues);
        to.Put<uint8_t>(info.is_last);
        to.Put<uint8_t>(info.has_joint_hits);
        to.Put<uint8_t>(info.is_unsplittable);
    }

    void OpenGroup(FrameReader& from) {
        const uint32_t first = from.Get<uint32_t>();
        const uint32_t max_queries = from.Get<uint32_t>();
        const uint32_t max_batches = from.Get<uint32_t>();
        const vector<BatchInfo> group = m_Engine->OpenGroup(first, max_queries, max_batches, Numbers(from));
        FrameWriter to;
        to.Put<uint32_t>(uint32_t(group.size()));
        for (const BatchInfo& batch : group) PutBatch(batch, to);
        m_Channel.Send('G', to.Bytes());
    }

    /// Returns the CRC-32 of gzip.
    static uint32_t Checksum(const string& bytes) {
        CChecksum sum(CChecksum::eCRC32ZIP);
        sum.AddChars(bytes.data(), bytes.size());
        return sum.GetChecksum();
    }

    static vector<int32_t> Numbers(FrameReader& from) {
        vector<int32_t> numbers;
        while (!from.AtEnd()) numbers.push_back(from.Get<int32_t>());
        return numbers;
    }

    void SendNextBatchSize(FrameReader& from) {
        FrameWriter to;
        to.Put<int32_t>(m_Engine->BatchSize(Numbers(from)));
        m_Channel.Send('M', to.Bytes());
    }

    /// A request to search a range.
    struct RangeRequest {
        uint64_t item;
        /// Number of a batch of the open group, and of the first batch of this group. ANY_BATCH for the batch that was
        /// opened last.
        uint32_t batch, group_start;
        /// Sizes of the batches up to the last one of the group, letters.
        vector<int32_t> sizes;
        Range range;
    };
    static constexpr uint32_t ANY_BATCH = UINT32_MAX;

    static RangeRequest ReadRangeRequest(FrameReader& from) {
        RangeRequest request;
        request.item = from.Get<uint64_t>();
        request.batch = from.Get<uint32_t>();
        request.group_start = from.Get<uint32_t>();
        for (uint32_t left = from.Get<uint32_t>(); left > 0; --left) request.sizes.push_back(from.Get<int32_t>());
        request.range.first = from.Get<uint32_t>();
        request.range.last = from.Get<uint32_t>();
        for (uint32_t left = from.Get<uint32_t>(); left > 0; --left) {
            const uint32_t query = from.Get<uint32_t>();
            request.range.evalue_thresholds[int32_t(query)] = from.Get<double>();
        }
        return request;
    }

    void SendRangeHits(uint64_t item, const RangeHits& found) {
        FrameWriter to;
        to.Put<uint64_t>(item);
        to.Put<int64_t>(found.extensions);
        to.Put<uint32_t>(found.list_capacity);
        to.Put<uint64_t>(found.dropped_subjects);
        to.Put<uint32_t>(uint32_t(found.hits.size()));
        for (const string& hits : found.hits) to.PutText(hits);
        m_Channel.Send('H', to.Bytes());
    }

    void Search(FrameReader& from) {
        RangeRequest request = ReadRangeRequest(from);
        // A search covers consecutive ranges with the same batch; a request with another batch starts the next search.
        for (bool changes_batch = true; changes_batch;) {
            changes_batch = false;
            if (request.batch != ANY_BATCH) m_Engine->SelectBatch(request.batch, request.group_start, request.sizes);
            m_Engine->Search(request.range, [&](RangeHits&& found, Range& range) {
                SendRangeHits(request.item, found);
                string body;
                if (m_Channel.Receive(body) != 'R') return false;
                FrameReader next(body);
                const uint32_t batch = request.batch;
                request = ReadRangeRequest(next);
                changes_batch = request.batch != batch;
                range = request.range;
                return !changes_batch;
            });
        }
    }

    /// Opens a batch and reports on it by one pass over the whole database.
    void ReportWholeBatch(FrameReader& from) {
        const uint64_t key = from.Get<uint64_t>();
        const BatchInfo info = m_Engine->OpenBatch(uint32_t(key), Numbers(from), false);
        string report;
        if (info.queries > 0) m_Engine->ReportAlone(0, info.queries, report);
        FrameWriter to;
        to.Put<uint64_t>(key);
        to.Put<uint32_t>(info.queries);
        to.Put<uint8_t>(info.is_last);
        to.Put<uint64_t>(report.size());
        to.Put<uint32_t>(Checksum(report));
        to.PutText(m_Engine->TakeHeaderLines());
        to.PutText(m_Engine->TakeRows());
        if (info.queries > 0) m_ReportStore->Add(key, std::move(report));
        m_Channel.Send('A', to.Bytes());
    }

    void Report(FrameReader& from) {
        const uint64_t key = from.Get<uint64_t>();
        const uint32_t first = from.Get<uint32_t>();
        const uint32_t last = from.Get<uint32_t>();
        const bool alone = from.Get<uint8_t>() != 0;
        const bool reads_randomly = from.Get<uint8_t>() != 0;
        string report;
        if (alone) {
            m_Engine->ReportAlone(first, last, report);
        } else {
            string hits;
            while (!from.AtEnd()) hits += from.GetText();
            m_Engine->Report(first, last, hits, reads_randomly, report);
        }
        FrameWriter to;
        to.Put<uint64_t>(key);
        to.Put<uint64_t>(report.size());
        to.Put<uint32_t>(Checksum(report));
        to.PutText(m_Engine->TakeHeaderLines());
        to.PutText(m_Engine->TakeRows());
        m_ReportStore->Add(key, std::move(report));
        m_Channel.Send('O', to.Bytes());
    }

    void WriteReports(FrameReader& from) {
        const string path = from.GetText();
        const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC);
        if (file < 0) throw runtime_error("cannot open " + path + ": " + strerror(errno));
        const uint64_t page = from.Get<uint64_t>();
        vector<pair<uint64_t, string>> edges;
        while (!from.AtEnd()) {
            const uint64_t key = from.Get<uint64_t>();
            m_ReportStore->Write(key, file, from.Get<uint64_t>(), page, edges);
        }
        // If other hosts write to the file too, the host that renames it cannot make the pages of this host durable.
        if (page > 1 && fsync(file) != 0) throw runtime_error("cannot write " + path + ": " + strerror(errno));
        if (close(file) != 0) throw runtime_error("cannot write " + path + ": " + strerror(errno));
        FrameWriter to;
        to.Put<uint32_t>(uint32_t(edges.size()));
        for (const auto& [offset, bytes] : edges) {
            to.Put<uint64_t>(offset);
            to.PutText(bytes);
        }
        m_Channel.Send('W', to.Bytes());
    }

    void SendStageSeconds() {
        const StageSeconds stages = m_Engine->Seconds();
        rusage used;
        getrusage(RUSAGE_SELF, &used);
        FrameWriter to;
        to.Put<double>(stages.search);
        to.Put<double>(stages.traceback);
        to.Put<double>(stages.format);
        to.Put<double>(double(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       double(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6);
        to.Put<uint64_t>(uint64_t(used.ru_maxrss) * 1024);
        to.Put<double>(stages.range_starts);
        to.Put<uint64_t>(stages.ranges_started);
        m_Channel.Send('S', to.Bytes());
    }

    string m_Program;
    Channel& m_Channel;
    CRef<CBlastAppArgs> m_Arguments;
    unique_ptr<CEngine> m_Engine;
    unique_ptr<ReportStore> m_ReportStore;
};

}  // namespace

int main(int argc, const char* argv[]) {
    if (argc == 2 && string(argv[1]) == "--version") {
        cout << CBlastVersion().Print() << endl;
        return 0;
    }
    if (argc < 2 || ProgramArguments(argv[1]).Empty()) {
        cerr << "usage: godwit-blast blastp|blastn|blastx|tblastn|tblastx ARGUMENTS.. (it is started by godwit search)" << endl;
        return 2;
    }
    // Output of the libraries must not get between the frames, so it goes to standard error.
    const int in = fcntl(0, F_DUPFD_CLOEXEC, 3);
    const int out = fcntl(1, F_DUPFD_CLOEXEC, 3);
    const int nothing = open("/dev/null", O_RDONLY);
    if (in < 0 || out < 0 || nothing < 0 || dup2(nothing, 0) < 0 || dup2(2, 1) < 0) return 4;
    Channel channel(in, out);
    CWorkerApp worker(argv[1], channel);
    try {
        return worker.AppMain(argc - 1, argv + 1, 0, eDS_Default, 0);
    } catch (const std::exception&) {
        return 1;
    }
}
