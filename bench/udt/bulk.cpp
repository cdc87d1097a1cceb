// A file over UDT, as the library sends and receives files: `udt-bulk serve ADDRESS PORT FILE` gives it to one client, `udt-bulk get ADDRESS PORT FILE`
// fetches it. Buffers hold what a gigabit has under way in a fifth of a second. UDT neither encrypts nor verifies.

#include <arpa/inet.h>
#include <fstream>
#include <iostream>
#include <string>
#include <udt/udt.h>

static int fail(const char* what) {
    std::cerr << what << ": " << UDT::getlasterror().getErrorMessage() << std::endl;
    return 1;
}

static UDTSOCKET opened() {
    UDTSOCKET one = UDT::socket(AF_INET, SOCK_STREAM, 0);
    int packets = 40000, buffer = 48 << 20, kernel = 4 << 20;
    UDT::setsockopt(one, 0, UDT_FC, &packets, sizeof packets);
    for (UDT::SOCKOPT option : {UDT_SNDBUF, UDT_RCVBUF}) UDT::setsockopt(one, 0, option, &buffer, sizeof buffer);
    for (UDT::SOCKOPT option : {UDP_SNDBUF, UDP_RCVBUF}) UDT::setsockopt(one, 0, option, &kernel, sizeof kernel);
    return one;
}

static int serve(sockaddr_in place, const char* file) {
    UDTSOCKET listening = opened();
    if (UDT::ERROR == UDT::bind(listening, (sockaddr*)&place, sizeof place) || UDT::ERROR == UDT::listen(listening, 4)) return fail("listen");
    sockaddr_in other;
    int length = sizeof other;
    UDTSOCKET client = UDT::accept(listening, (sockaddr*)&other, &length);
    if (client == UDT::INVALID_SOCK) return fail("accept");
    std::fstream in(file, std::ios::in | std::ios::binary | std::ios::ate);
    int64_t bytes = in.tellg(), offset = 0;
    in.seekg(0);
    if (UDT::ERROR == UDT::send(client, (char*)&bytes, sizeof bytes, 0)) return fail("send");
    if (UDT::ERROR == UDT::sendfile(client, in, offset, bytes)) return fail("sendfile");
    // Closing waits until what was sent has been acknowledged.
    UDT::close(client);
    return 0;
}

static int get(sockaddr_in place, const char* file) {
    UDTSOCKET server = opened();
    if (UDT::ERROR == UDT::connect(server, (sockaddr*)&place, sizeof place)) return fail("connect");
    int64_t bytes = 0, offset = 0;
    for (int got = 0; got < (int)sizeof bytes;) {
        int more = UDT::recv(server, (char*)&bytes + got, sizeof bytes - got, 0);
        if (UDT::ERROR == more) return fail("recv");
        got += more;
    }
    std::fstream out(file, std::ios::out | std::ios::binary | std::ios::trunc);
    if (UDT::ERROR == UDT::recvfile(server, out, offset, bytes)) return fail("recvfile");
    out.close();
    UDT::close(server);
    return out ? 0 : 1;
}

int main(int count, char** words) {
    std::string what = count == 5 ? words[1] : "";
    if (what != "serve" && what != "get") {
        std::cerr << "usage: udt-bulk serve|get ADDRESS PORT FILE" << std::endl;
        return 2;
    }
    sockaddr_in place = {};
    place.sin_family = AF_INET;
    place.sin_port = htons(std::stoi(words[3]));
    if (inet_pton(AF_INET, words[2], &place.sin_addr) != 1) return fail("address");
    UDT::startup();
    int outcome = what == "serve" ? serve(place, words[4]) : get(place, words[4]);
    UDT::cleanup();
    return outcome;
}
