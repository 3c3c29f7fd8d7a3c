// Times of one tokenizer, driven by text_bench.py so that runs can alternate with others.
//
// usage: text_bench MODEL.gguf
//
// Answers each line of standard input, the path of a text, with one JSON object: the bytes, the
// tokens, and the milliseconds that encode() and decode() took once each. The first line that it
// prints says what loading took.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/stopwatch.h"
#include "gguf/gguf.h"
#include "text/tokenizer.h"

namespace stet {
namespace {

template <typename T>
T expect(Result<T> result) {
    if (result) return std::move(result).value();
    fmt::print(stderr, "text_bench: {}\n", result.status().to_string());
    std::exit(1);
}

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) {
        fmt::print(stderr, "text_bench: {} can't be read\n", path);
        std::exit(1);
    }
    return {std::istreambuf_iterator<char>(file), {}};
}

template <typename Work>
double ms_of(Work work) {
    const ThreadStopwatch stopwatch;
    work();
    return stopwatch.ms();
}

void measure(const text::Tokenizer& tokenizer, std::string_view text) {
    std::vector<text::Token> tokens;
    const double encode_ms =
        ms_of([&] { tokens = expect(tokenizer.encode(text, {.add_special = false})); });
    std::string back;
    const double decode_ms = ms_of([&] { back = tokenizer.decode(tokens, true); });
    fmt::print(
        "{{\"bytes\":{},\"tokens\":{},\"encode_ms\":{},\"back_bytes\":{},\"decode_ms\":{}}}\n",
        text.size(), tokens.size(), encode_ms, back.size(), decode_ms);
}

void run(const std::string& model) {
    std::unique_ptr<text::Tokenizer> tokenizer;
    const double load_ms = ms_of([&] {
        const auto file = expect(gguf::File::open(Env::posix(), model));
        tokenizer = expect(text::Tokenizer::load(*file));
    });
    fmt::print("{{\"load_ms\":{}}}\n", load_ms);
    std::fflush(stdout);
    std::size_t offset = 0;
    std::size_t size = 0;
    std::string path;
    std::string text;
    std::string last;
    while (std::cin >> offset >> size && std::getline(std::cin >> std::ws, path)) {
        if (path != last) text = read(path);
        last = path;
        const std::string_view rest = std::string_view(text).substr(std::min(offset, text.size()));
        measure(*tokenizer, size == 0 ? rest : rest.substr(0, size));
        std::fflush(stdout);
    }
}

}  // namespace
}  // namespace stet

int main(int argc, char** argv) {
    if (argc != 2) {
        fmt::print(stderr, "usage: text_bench MODEL.gguf\n");
        return 2;
    }
    stet::run(argv[1]);
    return 0;
}
