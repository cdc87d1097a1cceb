// The frames between a worker and the head, over two file descriptors. A frame has one byte for its kind, eight bytes for
// the length of its body, and the body. Numbers are little-endian. src/worker_protocol.rs is the head's end and documents every
// frame.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include <unistd.h>

/// The head has closed its end or has sent an invalid frame. The worker stops.
struct DisconnectedError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A buffer to which numbers and strings are appended.
class FrameWriter {
    std::string m_Bytes;

public:
    template <typename T> void Put(T value) {
        static_assert(std::is_arithmetic<T>::value, "numbers only");
        m_Bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void PutText(const std::string& text) {
        Put<uint64_t>(text.size());
        m_Bytes += text;
    }
    void Append(const std::string& bytes) { m_Bytes += bytes; }
    const std::string& Bytes() const { return m_Bytes; }
    std::string Take() { return std::move(m_Bytes); }
};

/// A reader of numbers and strings from bytes. It does not own the bytes.
class FrameReader {
    const char* m_Next;
    const char* m_End;

public:
    explicit FrameReader(const std::string& bytes) : m_Next(bytes.data()), m_End(bytes.data() + bytes.size()) {}
    bool AtEnd() const { return m_Next == m_End; }
    template <typename T> T Get() {
        T value;
        if (size_t(m_End - m_Next) < sizeof value) throw DisconnectedError("a frame ends early");
        memcpy(&value, m_Next, sizeof value);
        m_Next += sizeof value;
        return value;
    }
    std::string GetText() {
        const uint64_t length = Get<uint64_t>();
        if (uint64_t(m_End - m_Next) < length) throw DisconnectedError("a frame ends early");
        std::string text(m_Next, length);
        m_Next += length;
        return text;
    }
};

/// The worker's end of the connection to the head.
class Channel {
    int m_In;
    int m_Out;

    void ReadAll(char* to, size_t length) {
        while (length > 0) {
            const ssize_t got = read(m_In, to, length);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) throw DisconnectedError("the coordinator is gone");
            to += got;
            length -= size_t(got);
        }
    }

    void WriteAll(const char* from, size_t length) {
        while (length > 0) {
            const ssize_t put = write(m_Out, from, length);
            if (put < 0 && errno == EINTR) continue;
            if (put <= 0) throw DisconnectedError("the coordinator is gone");
            from += put;
            length -= size_t(put);
        }
    }

public:
    Channel(int in, int out) : m_In(in), m_Out(out) {}

    void Send(char kind, const std::string& body) {
        char head[9];
        const uint64_t length = body.size();
        head[0] = kind;
        memcpy(head + 1, &length, sizeof length);
        WriteAll(head, sizeof head);
        WriteAll(body.data(), body.size());
    }

    /// Receives a frame: writes its body into `body` and returns its kind.
    char Receive(std::string& body) {
        char head[9];
        ReadAll(head, sizeof head);
        uint64_t length;
        memcpy(&length, head + 1, sizeof length);
        body.resize(length);
        if (length > 0) ReadAll(&body[0], length);
        return head[0];
    }
};
