// Runs the kept inputs of a fuzz target, so that every compiler tests what the fuzzer has found.
//
// usage: replay_TARGET FOLDER
//
// Each input is run whole, and cut short at some places. Exit status 1 if there is no input.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "fuzz/fuzz.h"

int main(int argc, char** argv) {
    namespace fs = std::filesystem;
    if (argc != 2 || !fs::is_directory(argv[1])) {
        std::fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 1;
    }
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(argv[1])) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
        std::printf("%s\n", path.filename().c_str());
        std::fflush(stdout);  // the last line names the input that ended the program
        std::ifstream file(path, std::ios::binary);
        const std::string all(std::istreambuf_iterator<char>(file), {});
        const std::vector<std::uint8_t> bytes(all.begin(), all.end());
        LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
        const std::size_t step = bytes.size() / 16 + 1;
        for (std::size_t size = 0; size < bytes.size(); size += step) {
            // A copy of its own, so that a sanitizer sees reads beyond its end.
            const std::vector<std::uint8_t> part(bytes.begin(),
                                                 bytes.begin() + static_cast<std::ptrdiff_t>(size));
            LLVMFuzzerTestOneInput(part.data(), part.size());
        }
    }
    std::printf("%zu inputs\n", paths.size());
    return paths.empty() ? 1 : 0;
}
