// The built-in page: files of page/ that the build puts into the program.
#pragma once

#include <span>
#include <string_view>

namespace stet::server {

struct PageFile {
    std::string_view path;  // "/app.js"
    std::string_view content_type;
    std::string_view content;
};
std::span<const PageFile> page_files();  // generated

}  // namespace stet::server
